"""An expert of rules over what is seen on a page: `expert_deed` names the next deed, for about fifty pages."""

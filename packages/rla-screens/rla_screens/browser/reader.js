// What the driver adds to a page before the page's own scripts run: which elements listen for the mouse, and a reader
// of the page. Only the driver calls it, and what it returns is checked in Python: a page may lie about itself.
(() => {
  // No code of a page runs beside it, on a clock of its own; the driver's policy refuses workers as well.
  for (const name of ["Worker", "SharedWorker"]) {
    Object.defineProperty(window, name, { value: undefined, writable: false, configurable: false });
  }
  if (window.Worklet) {
    Object.defineProperty(Worklet.prototype, "addModule", { value: undefined, writable: false, configurable: false });
  }
  const MINE = Symbol.for("rla.reader");
  if (window.top !== window || window[MINE]) return;
  const MOUSE = new Set(["click", "mousedown", "mouseup", "dblclick", "pointerdown", "mousemove", "mouseover"]);
  const SKIPPED = new Set(["reward-display", "sync-task-cover", "click-canvas", "attention-canvas", "query"]);
  const FRAMES = new Set(["wrap", "area"]);
  const UNSEEN = new Set(["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "HEAD", "META", "LINK", "DEFS"]);
  const SHAPES = new Set(["circle", "rect", "polygon", "ellipse", "path", "line", "text", "polyline"]);
  const ROLES = new Set(["tab", "button", "link", "menuitem", "slider", "option", "checkbox", "switch", "spinbutton"]);
  const WHOLE = new Set(["button", "link", "tab", "menuitem", "option"]);  // nothing in them has a line of its own
  const INLINE = new Set(["B", "I", "EM", "STRONG", "SPAN", "A"]);
  const SIGNED = new Set(["item", "image", "link", "button"]);
  const LISTED = 400, LONG = 300, ASKED = 2000, MANY = 4, FRAMES_DRAWN = 2;
  const listening = new WeakSet(), pictures = new Map();
  const framed = window.requestAnimationFrame.bind(window);  // of the browser: the clock of the page stands still
  let numbers = new WeakMap(), next = 1;

  const hear = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function (type, ...rest) {
    if (this instanceof Element && MOUSE.has(String(type))) listening.add(this);
    return hear.call(this, type, ...rest);
  };

  const short = (text) => String(text ?? "").replace(/\s+/g, " ").trim().slice(0, LONG);
  const shown = (el) => el.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const numbered = (el) => {
    if (!numbers.has(el)) numbers.set(el, next++);
    return numbers.get(el);
  };

  const gripped = (el) => el.classList.contains("ui-resizable-handle") && el.closest(".ui-dialog");  // a window's edge

  function roleOf(el) {
    const tag = el.tagName.toLowerCase();
    if (el instanceof SVGElement) return SHAPES.has(tag) ? tag : "";
    if (tag === "button") return "button";
    if (tag === "input") {
      const type = el.type;
      if (type === "hidden") return "";
      if (type === "checkbox" || type === "radio") return type;
      return ["button", "submit", "reset", "image"].includes(type) ? "button" : "textbox";
    }
    if (tag === "textarea" || el.isContentEditable && !el.parentElement?.isContentEditable) return "textarea";
    if (tag === "select") return "select";
    const role = el.getAttribute("role");
    if (ROLES.has(role)) return role;
    if (tag === "a" || el.classList.contains("alink")) return "link";
    if (FRAMES.has(el.id) || tag === "body" || tag === "html" || role === "dialog" || gripped(el)) return "";
    if (tag === "label" && el.control) return "";
    if (listening.has(el) || el.onclick || el.onmousedown) return tag === "img" ? "image" : "item";
    if (el.parentElement && getComputedStyle(el).cursor === "pointer"
        && getComputedStyle(el.parentElement).cursor !== "pointer") return "item";
    return "";
  }

  function textIn(el, whole) {  // unless whole, not that of elements in it which have lines of their own
    let text = "";
    for (const node of el.childNodes) {
      if (node.nodeType === Node.TEXT_NODE) text += node.data;
      else if (node.nodeType === Node.ELEMENT_NODE && !UNSEEN.has(node.tagName) && shown(node)
               && (whole || !roleOf(node))) text += (INLINE.has(node.tagName) ? "" : " ") + textIn(node, whole) + " ";
    }
    return text;
  }

  const sign = (el) => (short(el.id) || short(el.getAttribute("class")).split(" ")[0]).slice(0, 40);  // of an icon

  function nameOf(el, role) {
    if (["textbox", "textarea", "select", "checkbox", "radio"].includes(role)) {
      const said = el.getAttribute("aria-label") || el.placeholder;
      const labels = [...(el.labels ?? [])].map((label) => textIn(label)).join(" ");
      return short(labels.trim() || said || el.getAttribute("title") || "");
    }
    if (role === "button" && el.tagName === "INPUT") return short(el.value);
    const said = short(textIn(el, WHOLE.has(role))) || el.getAttribute("aria-label") || el.getAttribute("title");
    return short(said || el.getAttribute("alt"));
  }

  function line(el, role, text) {
    const box = el.getBoundingClientRect();
    const style = getComputedStyle(el);
    return {
      ref: role ? numbered(el) : 0, role, text, sign: SIGNED.has(role) && !text ? sign(el) : "", tag: el.tagName.toLowerCase(), id: short(el.id),
      classes: short(el.getAttribute("class")), box: [box.x, box.y, box.width, box.height],
      value: ["textbox", "textarea"].includes(role) ? short(el.value ?? el.textContent) : "",
      checked: "checked" in el ? Boolean(el.checked) : el.getAttribute("aria-selected") === "true", focused: document.activeElement === el,
      disabled: Boolean(el.disabled), readonly: Boolean(el.readOnly), kind: short(el.type),
      options: role === "select" ? [...el.options].slice(0, LISTED).map((one) => short(one.text)) : [],
      chosen: role === "select" ? [...el.selectedOptions].map((one) => short(one.text)) : [],
      color: short(el instanceof SVGElement ? style.fill : style.backgroundColor),
    };
  }

  function walk(el, lines, above) {
    if (lines.length >= LISTED || UNSEEN.has(el.tagName) || SKIPPED.has(el.id) || !shown(el)) return;
    const role = roleOf(el);
    const box = el.getBoundingClientRect();
    const sized = box.width > 0 && box.height > 0 || el instanceof SVGLineElement;
    const inner = role === "item" ? [...el.querySelectorAll("*")].filter(roleOf).length : 0;
    const holds = inner > MANY || inner > 0 && !textIn(el).trim();  // a part of the page, and no thing of its own
    const mine = role && !holds && (sized || role === "item" && box.width + box.height > 0);
    if (mine) lines.push(line(el, role, nameOf(el, role)));
    if (mine && (WHOLE.has(role) || role === "select" || role === "textarea" || el instanceof SVGElement)) return;
    for (const node of el.childNodes) {
      if (node.nodeType === Node.ELEMENT_NODE) walk(node, lines, mine || above);
      else if (node.nodeType === Node.TEXT_NODE && !mine && !above && node.data.trim() && sized) {
        const owner = el.closest("label");
        if (!owner?.control || !shown(owner.control)) lines.push(line(el, "", short(node.data)));
      }
    }
  }

  function asked() {
    try {
      const said = core.getUtterance();
      return String(typeof said === "object" ? said.utterance : said).replace(/\s+/g, " ").trim().slice(0, ASKED);
    } catch {
      return "";
    }
  }

  function read() {
    const lines = [];
    if (document.body) walk(document.body, lines, false);
    return {
      utterance: asked(), lines,
      ready: typeof WOB_TASK_READY === "undefined" || WOB_TASK_READY === true,
      done: typeof WOB_DONE_GLOBAL !== "undefined" && WOB_DONE_GLOBAL === true,
      reward: typeof WOB_RAW_REWARD_GLOBAL === "number" ? WOB_RAW_REWARD_GLOBAL : 0,
    };
  }

  function found(ref) {
    const all = document.querySelectorAll("body *");
    for (const el of all) if (numbers.get(el) === ref) return el;
    return null;
  }

  function reach(ref) {  // its middle, scrolled into view; null where it is gone
    const el = found(ref);
    if (!el) return null;
    el.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
    const box = [...el.getClientRects()][0] ?? el.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
  }

  function choose(ref, text) {
    const el = found(ref);
    const option = el && el.options && [...el.options].find((one) => short(one.text) === text);
    if (!option) return false;
    el.focus();
    if (el.multiple) option.selected = true; else el.value = option.value;
    if (!el.multiple) el.selectedIndex = option.index;
    el.dispatchEvent(new Event("input", { bubbles: true }));
    el.dispatchEvent(new Event("change", { bubbles: true }));
    return true;
  }

  function clear(ref) {
    const el = found(ref);
    if (!el) return false;
    el.focus();
    if (el.select) el.select();
    return true;
  }

  // A picture that loads later has no size until then: those of the page's own styles are there before it begins.
  async function preload() {
    const rules = [...document.querySelectorAll("style")].map((style) => style.textContent).join(" ");
    const found = new Set([...rules.matchAll(/url\(\s*["']?([^"')]+)["']?\s*\)/g)].map((one) => one[1]));
    for (const address of [...found].slice(0, LISTED)) {
      if (!pictures.has(address)) pictures.set(address, Object.assign(new Image(), { src: address }));
    }
    await Promise.allSettled([...pictures.values(), ...document.images].map((image) => image.decode()));
  }

  async function drawn() {  // a turn of the wheel shows in the frame after the one in which it is taken up
    for (let n = 0; n < FRAMES_DRAWN; n++) await new Promise(framed);
  }

  async function start(seed, settings) {
    await preload();
    document.activeElement?.blur();
    window.scrollTo(0, 0);
    Math.seedrandom(seed);
    core.EPISODE_MAX_TIME = 1e9;
    Object.assign(window, settings);
    core.startEpisodeReal();
    // What was paid stands beside the page, and a page that scrolls to a dialog would show it.
    document.getElementById("reward-display")?.style.setProperty("display", "none", "important");
    window.scrollTo(0, 0);
    numbers = new WeakMap();
    next = 1;
    await Promise.allSettled([...document.images].map((image) => image.decode()));
  }

  const reader = Object.freeze({ read, reach, choose, clear, drawn, start });
  Object.defineProperty(window, MINE, { value: reader, writable: false, configurable: false, enumerable: false });
})();

import json

from shop.merge import merged

with open("merged.json", "w") as file:
    json.dump(merged("north.json", "south.json"), file)

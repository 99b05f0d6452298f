"""Where things tend to be: per object type, the percentage of a receptacle type's instances that hold one.

Counted over every third of ALFWorld's training games, among scenes that have the object; below 2: left out.
"""

_COUNTS = """
alarmclock: diningtable 83, countertop 67, desk 56, dresser 47, sidetable 39, shelf 10
apple: fridge 41, diningtable 33, sidetable 26, garbagecan 25, microwave 23, countertop 19, sinkbasin 16
book: bed 59, coffeetable 54, desk 34, countertop 33, diningtable 32, sofa 22, dresser 20, armchair 16,
  tvstand 14, sidetable 7, cabinet 4, drawer 3
bowl: desk 77, coffeetable 44, fridge 34, tvstand 33, diningtable 32, dresser 30, countertop 17, shelf 9,
  sidetable 7, sinkbasin 6, cabinet 5, microwave 5
box: diningtable 47, coffeetable 28, sofa 25, desk 13, sidetable 5, tvstand 5, ottoman 5, cabinet 4, shelf
  3, dresser 3, armchair 3
bread: diningtable 49, countertop 34, fridge 17, sidetable 8
butterknife: diningtable 49, countertop 38, sidetable 34, sinkbasin 10, drawer 2
cd: diningtable 60, dresser 38, desk 36, sidetable 23, garbagecan 15, armchair 12, cabinet 9, drawer 8,
  shelf 5, safe 3
candle: coffeetable 59, sidetable 48, toilet 44, countertop 43, cart 42, diningtable 35, dresser 33, shelf
  21, tvstand 17, cabinet 11, drawer 9
cellphone: tvstand 75, ottoman 50, bed 44, desk 44, diningtable 39, dresser 35, safe 32, sofa 32,
  coffeetable 31, countertop 24, sidetable 18, armchair 17, drawer 5, shelf 5
cloth: bathtubbasin 61, cart 32, countertop 30, cabinet 17, dresser 17, sinkbasin 7, drawer 7, shelf 5,
  toilet 5
creditcard: tvstand 41, desk 38, dresser 35, sofa 32, diningtable 32, countertop 27, coffeetable 23,
  armchair 22, sidetable 21, ottoman 14, drawer 9, shelf 9
cup: fridge 36, diningtable 33, sidetable 29, countertop 17, sinkbasin 16, microwave 11, shelf 6, cabinet 3
desklamp: sidetable 41, desk 40, dresser 37, coffeetable 18, shelf 3
dishsponge: bathtubbasin 39, diningtable 30, cart 21, countertop 20, sinkbasin 14, toilet 13, sidetable 10,
  shelf 10, garbagecan 10, drawer 8, cabinet 3
egg: fridge 41, diningtable 27, sidetable 26, sinkbasin 24, garbagecan 22, microwave 22, countertop 19
floorlamp: sinkbasin 35
fork: diningtable 46, countertop 32, sidetable 19, sinkbasin 15, drawer 7
glassbottle: diningtable 39, countertop 20, fridge 20, sinkbasin 15, garbagecan 14, shelf 5, cabinet 4
handtowel: handtowelholder 79, countertop 5
kettle: diningtable 23, stoveburner 19, countertop 16, cabinet 3, sinkbasin 3
keychain: desk 38, safe 37, dresser 35, coffeetable 32, diningtable 30, sidetable 24, tvstand 17, sofa 14,
  ottoman 10, shelf 8, armchair 8, drawer 7
knife: diningtable 49, countertop 34, sidetable 10, sinkbasin 7, drawer 6
ladle: diningtable 50, countertop 30, drawer 4, cabinet 4, sinkbasin 3
laptop: bed 70, countertop 50, diningtable 40, desk 35, coffeetable 27, sofa 25, ottoman 19, tvstand 19,
  dresser 17, armchair 7, sidetable 4
lettuce: diningtable 48, fridge 37, sidetable 34, countertop 27, sinkbasin 11, garbagecan 2
mug: desk 66, dresser 39, coffeemachine 36, diningtable 30, fridge 27, sidetable 25, countertop 24,
  microwave 15, sinkbasin 13, shelf 7, cabinet 3
newspaper: diningtable 45, ottoman 40, dresser 39, coffeetable 32, sofa 26, sidetable 15, shelf 10, armchair
  9, tvstand 7
pan: countertop 24, stoveburner 22, diningtable 8, fridge 7
pen: diningtable 68, desk 56, coffeetable 47, dresser 43, sidetable 28, countertop 28, tvstand 27, shelf 12,
  drawer 6, garbagecan 4
pencil: diningtable 51, desk 49, coffeetable 46, dresser 39, sidetable 31, countertop 24, shelf 11,
  garbagecan 10, drawer 6
peppershaker: diningtable 36, sidetable 34, countertop 26, shelf 11, cabinet 5, drawer 5
pillow: bed 92, sofa 71, armchair 12
plate: diningtable 36, coffeetable 30, countertop 21, fridge 14, dresser 11, sidetable 8, cabinet 6, shelf
  4, sinkbasin 3
pot: stoveburner 33, countertop 11, diningtable 10, fridge 7
potato: fridge 41, diningtable 38, countertop 21, sidetable 21, microwave 19, sinkbasin 18, garbagecan 11
remotecontrol: countertop 50, tvstand 37, coffeetable 35, dresser 32, diningtable 32, desk 31, ottoman 24,
  sofa 23, sidetable 18, armchair 9, drawer 5, shelf 3
saltshaker: diningtable 38, sidetable 35, countertop 22, shelf 9, cabinet 5, drawer 5
soapbar: sidetable 50, countertop 34, toilet 26, bathtubbasin 25, sinkbasin 21, cart 16, shelf 14,
  garbagecan 12, cabinet 11, drawer 8
soapbottle: diningtable 48, dresser 43, toilet 37, sidetable 35, countertop 26, garbagecan 20, shelf 17,
  cart 16, cabinet 5
spatula: diningtable 48, countertop 31, sinkbasin 16, sidetable 15, drawer 6
spoon: diningtable 43, countertop 30, sidetable 29, sinkbasin 20, drawer 8
spraybottle: sidetable 83, cart 58, diningtable 50, dresser 48, toilet 47, countertop 37, shelf 20,
  garbagecan 18, cabinet 8
statue: desk 48, diningtable 48, coffeetable 47, dresser 37, tvstand 35, countertop 31, sidetable 23, shelf
  18
tissuebox: coffeetable 60, desk 55, countertop 55, cart 42, diningtable 32, tvstand 30, dresser 26, shelf
  21, sidetable 20, toilet 7, cabinet 7, drawer 6
toiletpaper: sidetable 42, toilet 39, countertop 38, dresser 33, shelf 24, cart 21, garbagecan 20,
  toiletpaperhanger 18, cabinet 12, drawer 8
tomato: fridge 53, diningtable 41, sidetable 27, countertop 23, garbagecan 15, sinkbasin 11
towel: towelholder 88, countertop 3
vase: desk 45, dresser 44, coffeetable 43, diningtable 38, countertop 27, shelf 22, tvstand 22, sidetable
  18, cabinet 6
watch: dresser 47, diningtable 46, tvstand 41, coffeetable 34, desk 20, sidetable 19, drawer 10, shelf 6
wateringcan: shelf 13, coffeetable 11
winebottle: diningtable 50, countertop 30, garbagecan 21, shelf 6, sidetable 5, cabinet 4, fridge 4
"""


def _read(text: str) -> dict[str, dict[str, float]]:
    shares: dict[str, dict[str, float]] = {}
    for row in text.replace("\n  ", " ").strip().splitlines():
        item, _, entries = row.partition(": ")
        pairs = (entry.split() for entry in entries.split(", "))
        shares[item] = {place: int(percent) / 100 for place, percent in pairs}
    return shares


SHARES: dict[str, dict[str, float]] = _read(_COUNTS)
UNLIKELY = 0.005
"""In place of the shares that are left out."""


def share(item: str, place: str) -> float:
    """The chance that a receptacle of type `place` holds an object of type `item`; types in either case."""
    return SHARES.get(item.lower(), {}).get(place.lower(), UNLIKELY)

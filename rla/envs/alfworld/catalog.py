"""What ALFRED's rooms hold and what its object types can do, as counted over ALFWorld's training games.

`CAN_CONTAIN` and the capability sets agree with the `canContain`, `cleanable`, ... facts of every training
game; the room tables give, per type, the share of that room's games in which it occurs and its mean count
where it does. Types are named without the PDDL suffix ("Mug", not "MugType").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from rla.envs.alfworld.goals import phrases

LARGEST_NUMBER = 30
"""No type has more instances in any training game (27 cabinets, 27 drawers)."""


class Room(StrEnum):
    """The four kinds of scene; ALFRED numbers their floor plans 1-30, 201-230, 301-330 and 401-430."""

    KITCHEN = "kitchen"
    LIVING_ROOM = "living_room"
    BEDROOM = "bedroom"
    BATHROOM = "bathroom"


@dataclass(frozen=True, slots=True)
class Stock:
    """How often a type occurs in a room: `share` of the games, `count` on average in those."""

    share: float
    count: float


@dataclass(frozen=True, slots=True)
class RoomTable:
    """`essential` receptacles and `fixtures` (objects) are in every built-in scene of the room, however
    small.
    """

    essential: tuple[str, ...]
    fixtures: tuple[str, ...]
    receptacles: dict[str, Stock]
    objects: dict[str, Stock]


def _types(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _stock(text: str) -> dict[str, Stock]:
    rows = (row.split() for row in text.split(";"))
    return {name: Stock(float(share), float(count)) for name, share, count in rows}


CAN_CONTAIN: dict[str, frozenset[str]] = {
    "ArmChair": _types("Book Box CellPhone Cloth CreditCard KeyChain Laptop Newspaper Pillow RemoteControl "),
    "BathtubBasin": _types("Cloth DishSponge HandTowel SoapBar"),
    "Bed": _types("BaseballBat BasketBall Book CellPhone Laptop Pillow TennisRacket"),
    "Cabinet": _types(
        "Book Bowl Box CD Candle Cloth Cup DishSponge Glassbottle HandTowel Kettle Ladle Mug "
        "Newspaper Pan PepperShaker Plate Plunger Pot SaltShaker SoapBar SoapBottle SprayBottle "
        "TissueBox ToiletPaper Vase WateringCan WineBottle "
    ),
    "Cart": _types("Candle Cloth DishSponge HandTowel Plunger SoapBar SoapBottle SprayBottle TissueBox ToiletPaper "),
    "CoffeeMachine": _types("Mug"),
    "CoffeeTable": _types(
        "Book Bowl Box Candle CellPhone CreditCard KeyChain Laptop Newspaper Pen Pencil Plate "
        "RemoteControl Statue TissueBox Vase Watch WateringCan "
    ),
    "CounterTop": _types(
        "AlarmClock Apple Book Bowl Bread ButterKnife CD Candle CellPhone Cloth CreditCard Cup "
        "DishSponge Egg Fork Glassbottle HandTowel Kettle KeyChain Knife Ladle Laptop Lettuce Mug Pan "
        "Pen Pencil PepperShaker Plate Pot Potato RemoteControl SaltShaker SoapBar SoapBottle Spatula "
        "Spoon SprayBottle Statue TissueBox ToiletPaper Tomato Vase WineBottle "
    ),
    "Desk": _types(
        "AlarmClock BasketBall Book Bowl Box CD CellPhone Cloth CreditCard KeyChain Laptop Mug Pen "
        "Pencil RemoteControl Statue TennisRacket TissueBox Vase Watch WateringCan "
    ),
    "DiningTable": _types(
        "AlarmClock Apple BaseballBat BasketBall Book Bowl Box Bread ButterKnife CD Candle CellPhone "
        "Cloth CreditCard Cup DishSponge Egg Fork Glassbottle Kettle KeyChain Knife Ladle Laptop "
        "Lettuce Mug Newspaper Pan Pen Pencil PepperShaker Plate Pot Potato RemoteControl SaltShaker "
        "SoapBottle Spatula Spoon SprayBottle Statue TennisRacket TissueBox Tomato Vase Watch "
        "WateringCan WineBottle "
    ),
    "Drawer": _types(
        "Book ButterKnife CD Candle CellPhone Cloth CreditCard DishSponge Fork HandTowel KeyChain "
        "Knife Ladle Newspaper Pen Pencil PepperShaker RemoteControl SaltShaker SoapBar SoapBottle "
        "Spatula Spoon SprayBottle TissueBox ToiletPaper Watch WateringCan "
    ),
    "Dresser": _types(
        "AlarmClock BasketBall Book Bowl Box CD Candle CellPhone Cloth CreditCard KeyChain Laptop Mug "
        "Newspaper Pen Pencil Plate RemoteControl SprayBottle Statue TennisRacket TissueBox "
        "ToiletPaper Vase Watch WateringCan "
    ),
    "Fridge": _types("Apple Bowl Bread Cup Egg Glassbottle Lettuce Mug Pan Plate Pot Potato Tomato WineBottle "),
    "GarbageCan": _types(
        "Apple Bread CD Cloth DishSponge Egg HandTowel Lettuce Newspaper Pen Pencil Potato SoapBar "
        "SoapBottle SprayBottle TissueBox ToiletPaper Tomato WineBottle "
    ),
    "HandTowelHolder": _types("HandTowel"),
    "LaundryHamper": _types("Cloth"),
    "Microwave": _types("Apple Bowl Bread Cup Egg Glassbottle Mug Plate Potato Tomato"),
    "Ottoman": _types("Book Box CellPhone CreditCard KeyChain Laptop Newspaper Pillow RemoteControl "),
    "Safe": _types("CD CellPhone CreditCard KeyChain Statue Vase"),
    "Shelf": _types(
        "AlarmClock Book Bowl Box CD Candle CellPhone Cloth CreditCard Cup DishSponge Glassbottle "
        "HandTowel Kettle KeyChain Mug Newspaper Pen Pencil PepperShaker Plate Pot RemoteControl "
        "SaltShaker SoapBar SoapBottle SprayBottle Statue TissueBox ToiletPaper Vase Watch "
        "WateringCan WineBottle "
    ),
    "SideTable": _types(
        "AlarmClock Apple BaseballBat BasketBall Book Bowl Box Bread ButterKnife CD Candle CellPhone "
        "Cloth CreditCard Cup DishSponge Egg Fork HandTowel Kettle KeyChain Knife Laptop Lettuce Mug "
        "Newspaper Pan Pen Pencil PepperShaker Plate Pot Potato RemoteControl SaltShaker SoapBar "
        "SoapBottle Spatula Spoon SprayBottle Statue TennisRacket TissueBox ToiletPaper Tomato Vase "
        "Watch WateringCan WineBottle "
    ),
    "SinkBasin": _types(
        "Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Glassbottle HandTowel Kettle Knife "
        "Ladle Lettuce Mug Pan Plate Pot Potato SoapBar Spatula Spoon Tomato "
    ),
    "Sofa": _types("Book Box CellPhone CreditCard KeyChain Laptop Newspaper Pillow RemoteControl "),
    "StoveBurner": _types("Kettle Pan Pot"),
    "TVStand": _types("TissueBox"),
    "Toilet": _types("Candle Cloth DishSponge HandTowel SoapBar SoapBottle SprayBottle TissueBox ToiletPaper "),
    "ToiletPaperHanger": _types("ToiletPaper"),
    "TowelHolder": _types("Towel"),
}

CLEANABLE = _types(
    "Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Kettle Knife Ladle Lettuce Mug Pan Plate "
    "Pot Potato SoapBar Spatula Spoon Tomato "
)
HEATABLE = _types("Apple Bread Cup Egg Mug Plate Potato Tomato")
COOLABLE = _types("Apple Bowl Bread Cup Egg Lettuce Mug Pan Plate Pot Potato Tomato WineBottle")
SLICEABLE = _types("Apple Bread Egg Lettuce Potato Tomato")
TOGGLEABLE = _types("DeskLamp FloorLamp")
VESSELS = _types("Bowl Box Cup Mug Pan Plate Pot")
FIXED = _types(
    "Bathtub Blinds Chair Curtains DeskLamp FloorLamp Footstool HousePlant LaundryHamperLid "
    "LightSwitch Mirror Painting Poster ShowerDoor ShowerGlass Sink StoveKnob Television Window "
)
OPENABLE = {"Fridge": 1.0, "Microwave": 1.0, "Cabinet": 0.83, "Drawer": 0.84, "Safe": 0.83}
"""The share of a receptacle type's instances that has a door; the others are open for good."""

STANDS: dict[str, tuple[str, ...]] = {
    "DeskLamp": ("SideTable", "Desk", "Dresser", "Shelf", "CoffeeTable"),
    "HousePlant": ("CounterTop", "SideTable", "DiningTable", "Shelf", "CoffeeTable", "Desk", "Dresser"),
    "Television": ("TVStand", "Dresser", "CoffeeTable"),
    "PaperTowelRoll": ("CounterTop", "DiningTable", "Shelf", "GarbageCan"),
    "TeddyBear": ("Bed",),
}
"""Where objects stand that no receptacle type `canContain`."""

FREE_STANDING = _types("BaseballBat BasketBall Boots Footstool Plunger ScrubBrush TennisRacket")
"""Pickupable types that the training games leave on the floor, out of the agent's reach."""

BASINS = {"SinkBasin": "Sink", "BathtubBasin": "Bathtub"}
"""Receptacle types that are the basin of an object type; their ids end in the basin's name."""

ROOMS: dict[Room, RoomTable] = {
    Room.KITCHEN: RoomTable(
        essential=("Fridge", "Microwave", "SinkBasin", "CounterTop", "Cabinet"),
        fixtures=("Sink",),
        receptacles=_stock(
            "Cabinet 1.00 13.6; CoffeeMachine 1.00 1.0; CounterTop 1.00 2.3; DiningTable 0.57 1.3; "
            "Drawer 0.97 6.1; Fridge 1.00 1.0; GarbageCan 1.00 1.0; Microwave 1.00 1.0; Safe 0.04 "
            "1.0; Shelf 0.20 3.0; SideTable 0.11 1.0; SinkBasin 1.00 1.0; StoveBurner 1.00 4.1; "
            "Toaster 1.00 1.0 "
        ),
        objects=_stock(
            "Apple 1.00 2.0; Blinds 0.21 1.0; Book 0.11 1.5; Bowl 1.00 2.0; Bread 1.00 1.6; "
            "ButterKnife 0.97 1.9; CellPhone 0.11 1.9; Chair 0.84 1.5; CreditCard 0.09 2.1; Cup 1.00 "
            "2.0; Curtains 0.07 1.0; DishSponge 1.00 2.0; Egg 1.00 2.0; Fork 1.00 2.0; Glassbottle "
            "0.24 2.0; HousePlant 0.36 1.1; Kettle 0.52 1.8; Knife 1.00 2.0; Ladle 0.35 2.0; Lettuce "
            "1.00 1.8; LightSwitch 1.00 1.0; Mirror 0.09 1.0; Mug 1.00 2.0; Pan 1.00 1.4; "
            "PaperTowelRoll 0.35 1.0; Pen 0.06 2.0; Pencil 0.07 1.8; PepperShaker 1.00 2.1; Plate "
            "1.00 1.9; Pot 1.00 1.6; Potato 1.00 2.0; SaltShaker 1.00 2.0; Sink 1.00 1.0; SoapBottle "
            "1.00 2.0; Spatula 1.00 1.9; Spoon 1.00 2.0; SprayBottle 0.07 1.9; Statue 0.15 1.8; "
            "StoveKnob 1.00 4.1; Tomato 1.00 2.0; Vase 0.15 2.5; Window 0.89 1.4; WineBottle 0.42 2.0 "
        ),
    ),
    Room.LIVING_ROOM: RoomTable(
        essential=("Sofa", "SideTable", "Drawer"),
        fixtures=("DeskLamp",),
        receptacles=_stock(
            "ArmChair 0.92 1.4; Cabinet 0.16 4.4; CoffeeTable 0.83 1.2; Desk 0.01 1.0; DiningTable "
            "0.48 1.2; Drawer 0.78 5.1; Dresser 0.38 1.1; GarbageCan 1.00 1.0; Ottoman 0.12 1.0; Safe "
            "0.01 1.0; Shelf 0.37 6.0; SideTable 0.82 2.0; Sofa 1.00 1.2; TVStand 0.35 1.2 "
        ),
        objects=_stock(
            "Book 0.26 1.8; Boots 0.20 1.0; Bowl 0.11 1.8; Box 1.00 1.4; Candle 0.09 2.4; CellPhone "
            "0.21 2.0; Chair 0.70 3.8; CreditCard 1.00 2.2; Curtains 0.35 1.4; DeskLamp 0.25 1.0; "
            "FloorLamp 1.00 1.0; HousePlant 1.00 1.1; KeyChain 1.00 2.0; Laptop 1.00 1.4; LightSwitch "
            "1.00 1.0; Mirror 0.10 1.0; Newspaper 0.62 1.9; Painting 1.00 1.9; Pen 0.20 2.0; Pencil "
            "0.17 2.0; Pillow 1.00 1.1; Plate 0.35 1.7; RemoteControl 1.00 2.1; Statue 0.96 2.3; "
            "Television 1.00 1.0; TissueBox 0.34 2.1; Vase 0.56 2.8; Watch 0.49 2.1; WateringCan 0.50 "
            "1.1; Window 0.96 2.7 "
        ),
    ),
    Room.BEDROOM: RoomTable(
        essential=("Bed", "Desk", "Drawer"),
        fixtures=("DeskLamp",),
        receptacles=_stock(
            "ArmChair 0.19 1.6; Bed 1.00 1.2; Cabinet 0.16 2.7; CounterTop 0.03 1.0; Desk 0.70 1.1; "
            "DiningTable 0.13 1.0; Drawer 0.96 6.1; Dresser 0.46 1.1; GarbageCan 1.00 1.0; "
            "LaundryHamper 0.28 1.0; Safe 0.16 1.0; Shelf 0.68 4.4; SideTable 0.66 1.3 "
        ),
        objects=_stock(
            "AlarmClock 1.00 1.7; BaseballBat 0.41 1.1; BasketBall 0.37 1.0; Blinds 0.91 1.5; Book "
            "1.00 1.9; Boots 0.10 1.0; Bowl 0.45 1.6; Box 0.47 1.0; CD 1.00 2.1; CellPhone 1.00 2.1; "
            "Chair 0.79 1.3; Cloth 0.19 1.9; CreditCard 1.00 2.0; Curtains 0.07 1.6; DeskLamp 0.71 "
            "1.1; Footstool 0.04 1.0; HousePlant 0.27 1.0; KeyChain 1.00 2.1; Laptop 1.00 1.6; "
            "LaundryHamperLid 0.28 1.0; LightSwitch 1.00 1.0; Mirror 1.00 1.0; Mug 0.51 1.9; Painting "
            "0.42 1.5; Pen 1.00 2.1; Pencil 1.00 2.0; Pillow 1.00 1.7; Poster 0.24 1.5; RemoteControl "
            "0.12 2.0; Statue 0.15 1.5; TeddyBear 0.35 1.0; Television 0.12 1.0; TennisRacket 0.40 "
            "1.0; TissueBox 0.14 1.9; Vase 0.06 2.2; Watch 0.07 2.1; Window 1.00 1.5 "
        ),
    ),
    Room.BATHROOM: RoomTable(
        essential=("SinkBasin", "CounterTop", "Toilet", "Cabinet"),
        fixtures=("Sink",),
        receptacles=_stock(
            "BathtubBasin 0.67 1.0; Cabinet 0.44 4.4; Cart 0.08 1.0; CounterTop 0.86 1.2; Drawer 0.58 "
            "4.7; Dresser 0.08 1.0; GarbageCan 1.00 1.0; HandTowelHolder 1.00 1.5; Shelf 0.25 2.0; "
            "SideTable 0.06 1.0; SinkBasin 1.00 1.5; Toilet 1.00 1.0; ToiletPaperHanger 1.00 1.0; "
            "TowelHolder 1.00 1.3 "
        ),
        objects=_stock(
            "Bathtub 0.71 1.0; Candle 1.00 2.1; Cloth 1.00 2.0; DishSponge 0.24 2.2; FloorLamp 0.08 "
            "2.0; Footstool 0.05 1.0; HandTowel 1.00 1.2; HousePlant 0.04 1.0; LightSwitch 1.00 1.0; "
            "Mirror 1.00 1.0; Painting 0.05 1.0; PaperTowelRoll 0.16 1.0; Plunger 1.00 1.0; "
            "ScrubBrush 1.00 1.0; ShowerDoor 0.58 1.0; ShowerGlass 0.42 1.0; Sink 1.00 1.4; SoapBar "
            "1.00 2.1; SoapBottle 1.00 2.0; SprayBottle 1.00 2.0; TissueBox 0.25 1.9; ToiletPaper "
            "1.00 2.3; Towel 1.00 1.1; Window 0.66 1.4 "
        ),
    ),
}

PHRASES = (
    "you are in the middle of a room. looking quickly around you, you see a",
    "your task is to:",
    "you arrive at",
    "nothing happens.",
    ". on the",
    ", you see a",
    ", you see nothing.",
    ", and a",
    ", a",
    "is closed.",
    "is open. in it, you see a",
    "is open. in it, you see nothing.",
    "you open the",
    "you close the",
    "you pick up the",
    "from the",
    "you move the",
    "you put the",
    "to the",
    "in/on the",
    "using the",
    "go to",
    "judge:",
    "score +1",
    "score -1",
)
"""Turns of speech that a small model's tokenizer gives a token of their own."""


def type_names() -> frozenset[str]:
    """Every object and receptacle type."""
    objects = (name for table in ROOMS.values() for name in table.objects)
    receptacles = (name for table in ROOMS.values() for name in table.receptacles)
    return frozenset((*objects, *receptacles, *CAN_CONTAIN))


def vocabulary() -> Iterator[str]:
    """Every name that a scene may show and every wording of a task, in the letters of the game's texts."""
    yield " ".join(sorted(name.lower() for name in type_names()))
    yield from phrases()
    yield " ".join(str(number) for number in range(1, LARGEST_NUMBER + 1))

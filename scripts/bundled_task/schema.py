"""The bike shop: its tables and three snapshots of its data, made from seeds.

The base snapshot is what the questions are about. The two copies share schema and keys and differ in the rest: cells
drawn again from shifted ranges, rows dropped, rows doubled under fresh keys, and in the last copy many rows added. A
query that only happens to give the right answer on the base gives another one on a copy.

Every value of LITERALS occurs in every snapshot, so a filter on it never comes back empty; the values of `extra` belong
to one snapshot only, so that even SELECT DISTINCT tells the snapshots apart.
"""

from __future__ import annotations

import datetime
import random
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

Row = dict[str, object]
Tables = dict[str, list[Row]]

COLUMNS: Mapping[str, str] = {
    "store": "id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL, opened TEXT NOT NULL, "
    "rent INTEGER NOT NULL",
    "employee": "id INTEGER PRIMARY KEY, name TEXT NOT NULL, role TEXT NOT NULL, salary INTEGER NOT NULL, "
    "store_id INTEGER NOT NULL REFERENCES store(id)",
    "customer": "id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL, age INTEGER, joined TEXT NOT NULL",
    "product": "id INTEGER PRIMARY KEY, name TEXT NOT NULL, kind TEXT NOT NULL, brand TEXT NOT NULL, color TEXT, "
    "price REAL NOT NULL, stock INTEGER NOT NULL",
    "sale": "id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customer(id), "
    "product_id INTEGER NOT NULL REFERENCES product(id), store_id INTEGER NOT NULL REFERENCES store(id), "
    "quantity INTEGER NOT NULL, day TEXT NOT NULL",
    "repair": "id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customer(id), "
    "employee_id INTEGER REFERENCES employee(id), cost INTEGER, day TEXT NOT NULL",
    "review": "id INTEGER PRIMARY KEY, product_id INTEGER NOT NULL REFERENCES product(id), "
    "customer_id INTEGER NOT NULL REFERENCES customer(id), stars INTEGER NOT NULL",
}

ROWS = {"store": 30, "employee": 60, "customer": 90, "product": 60, "sale": 180, "repair": 90, "review": 120}

FOREIGN_KEYS = {
    "employee": {"store_id": "store"},
    "sale": {"customer_id": "customer", "product_id": "product", "store_id": "store"},
    "repair": {"customer_id": "customer", "employee_id": "employee"},
    "review": {"product_id": "product", "customer_id": "customer"},
}

LITERALS: Mapping[str, tuple[str, ...]] = {
    "city": ("Oslo", "Rome", "Paris", "Berlin", "Madrid", "Vienna", "Dublin", "Prague"),
    "role": ("manager", "mechanic", "seller", "cashier"),
    "kind": ("bike", "helmet", "lock", "lamp", "pump"),
    "brand": ("Volt", "Nova", "Atlas", "Orbit", "Falcon"),
    "color": ("red", "blue", "black", "green", "white"),
}

YEARS = (2019, 2020, 2021, 2022, 2023)

FIRST_NAMES = (
    "Anna",
    "Ben",
    "Carla",
    "David",
    "Emma",
    "Frank",
    "Grace",
    "Henry",
    "Ivy",
    "Jack",
    "Karen",
    "Leo",
    "Maria",
    "Nick",
    "Olga",
    "Paul",
    "Rosa",
    "Sam",
    "Tina",
    "Victor",
    "Wendy",
    "Adam",
)
LAST_NAMES = (
    "Hill",
    "Stone",
    "Reed",
    "Moss",
    "Lake",
    "Wood",
    "Fox",
    "Hart",
    "King",
    "Lane",
    "Page",
    "Bell",
    "Cole",
    "Dean",
    "Ford",
)
STORE_NAMES = ("Harbor", "Mill", "Station", "Castle", "Garden", "River", "Market", "Bridge", "Tower", "Forest")
STORE_SIDES = ("North", "South", "East", "West", "Old", "New", "Grand")
MODELS = (
    "Comet",
    "Swift",
    "Arrow",
    "Breeze",
    "Summit",
    "Pulse",
    "Ranger",
    "Spark",
    "Glide",
    "Echo",
    "Drift",
    "Metro",
    "Trail",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How one snapshot differs: Profile(name="shop", seed=1, extra={"city": ("Porto",)}, shift=1.0, growth=0.0)."""

    name: str
    seed: int
    extra: Mapping[str, tuple[str, ...]]
    shift: float
    """Factor on the upper end of numeric ranges."""
    growth: float
    """Rows added under fresh keys, as a share of the base's rows."""


PROFILES = (
    Profile(
        name="shop",
        seed=11,
        extra={
            "city": ("Porto", "Turin"),
            "role": ("trainee",),
            "kind": ("saddle", "bell"),
            "brand": ("Zenith",),
            "color": ("pink", "gray"),
        },
        shift=1.0,
        growth=0.0,
    ),
    Profile(
        name="shop_copy1",
        seed=23,
        extra={
            "city": ("Lyon",),
            "role": ("cleaner", "driver"),
            "kind": ("basket",),
            "brand": ("Kestrel", "Rapid"),
            "color": ("gold",),
        },
        shift=1.25,
        growth=0.1,
    ),
    Profile(
        name="shop_copy2",
        seed=37,
        extra={
            "city": ("Malmo", "Ghent", "Basel"),
            "role": ("buyer", "guard", "courier"),
            "kind": ("trailer", "rack", "chain"),
            "brand": ("Lumen", "Sierra", "Cobalt"),
            "color": ("brown", "purple", "orange"),
        },
        shift=0.85,
        growth=0.8,
    ),
)


def _day(rng: random.Random) -> str:
    start = datetime.date(YEARS[0], 1, 1)
    return (start + datetime.timedelta(days=rng.randrange(365 * len(YEARS)))).isoformat()


def _skewed(values: tuple[str, ...], rng: random.Random, profile: Profile) -> str:
    """Draw a value; the order of preference is the profile's own, so counts differ between snapshots."""
    order = list(values)
    random.Random(f"{profile.seed}{values}").shuffle(order)
    return rng.choices(order, weights=[1.0 / (rank + 2) for rank in range(len(order))])[0]


def _word(column: str, rng: random.Random, profile: Profile) -> str:
    if rng.random() < 0.08:
        return rng.choice(profile.extra[column])
    return _skewed(LITERALS[column], rng, profile)


def _plain_values(table: str, rng: random.Random, profile: Profile) -> Row:
    """Non-key cells of one row."""
    shift = profile.shift
    if table == "store":
        name = f"{rng.choice(STORE_SIDES)} {rng.choice(STORE_NAMES)}"
        return {
            "name": name,
            "city": _word("city", rng, profile),
            "opened": _day(rng),
            "rent": round(rng.uniform(80, 500 * shift)) * 10,
        }
    person = f"{rng.choice(FIRST_NAMES)} {rng.choice(LAST_NAMES)}"
    if table == "employee":
        return {
            "name": person,
            "role": _word("role", rng, profile),
            "salary": round(rng.uniform(180, 520 * shift)) * 10,
        }
    if table == "customer":
        age = None if rng.random() < 0.1 else round(rng.uniform(18, 72 * shift))
        return {"name": person, "city": _word("city", rng, profile), "age": age, "joined": _day(rng)}
    if table == "product":
        kind = _word("kind", rng, profile)
        price = round(rng.uniform(200, 1500 * shift)) if kind == "bike" else round(rng.uniform(8, 260 * shift) * 2) / 2
        color = None if rng.random() < 0.12 else _word("color", rng, profile)
        name = f"{rng.choice(MODELS)} {rng.randint(1, 9)}00"
        return {
            "name": name,
            "kind": kind,
            "brand": _word("brand", rng, profile),
            "color": color,
            "price": float(price),
            "stock": rng.randint(0, round(90 * shift)),
        }
    if table == "sale":
        return {"quantity": min(rng.randint(1, 9), rng.randint(1, 9)), "day": _day(rng)}
    if table == "repair":
        return {"cost": None if rng.random() < 0.1 else round(rng.uniform(10, 240 * shift)), "day": _day(rng)}
    return {"stars": max(rng.randint(1, 5), rng.randint(1, 5))}


def _parent(table: str, column: str, parents: list[Row], rng: random.Random, profile: Profile) -> object:
    """A parent key. About a quarter of the parents stay childless and a few have many children."""
    if (table, column) == ("repair", "employee_id") and rng.random() < 0.12:
        return None
    picker = random.Random(f"{profile.seed}{table}{column}")
    ids = [row["id"] for row in parents]
    picker.shuffle(ids)
    active = ids[: max(3, round(len(ids) * 0.75))]
    return rng.choices(active, weights=[1.0 / (rank + 4) for rank in range(len(active))])[0]


def _fresh_row(table: str, key: int, made: Tables, rng: random.Random, profile: Profile) -> Row:
    keys = {c: _parent(table, c, made[p], rng, profile) for c, p in FOREIGN_KEYS.get(table, {}).items()}
    return {"id": key, **keys, **_plain_values(table, rng, profile)}


def _varied_row(table: str, row: Row, made: Tables, rng: random.Random, profile: Profile) -> Row:
    """The same key; half of the cells drawn again; names mostly kept, so that a look-up by name still finds one."""
    fresh = _fresh_row(table, int(str(row["id"])), made, rng, profile)
    varied = dict(row)
    for column, value in fresh.items():
        parent = FOREIGN_KEYS.get(table, {}).get(column)
        gone = parent is not None and row[column] is not None and all(p["id"] != row[column] for p in made[parent])
        if gone or rng.random() < (0.1 if column == "name" else 0.55):
            varied[column] = value
    for column in ("city", "role", "kind", "brand", "color"):
        value = varied.get(column)
        if value is not None and value not in LITERALS[column] + tuple(profile.extra[column]):
            varied[column] = rng.choice(profile.extra[column])
    return varied


def make_base() -> Tables:
    """The snapshot that the questions are about: {"store": [{"id": 1, "name": "Old Mill", ...}, ...], ...}."""
    profile = PROFILES[0]
    rng = random.Random(profile.seed)
    made: Tables = {}
    for table in COLUMNS:
        made[table] = [_fresh_row(table, key, made, rng, profile) for key in range(1, ROWS[table] + 1)]
    return made


def make_copy(base: Tables, profile: Profile) -> Tables:
    """A counterfactual copy of the base."""
    rng = random.Random(profile.seed)
    made: Tables = {}
    for table in COLUMNS:
        kept = [row for row in base[table] if rng.random() > 0.15]
        made[table] = [_varied_row(table, row, made, rng, profile) for row in kept]
        key = ROWS[table] + 1
        for row in rng.sample(made[table], k=len(made[table]) // 10):
            made[table].append({**row, "id": key})
            key += 1
        for _ in range(round(ROWS[table] * profile.growth)):
            made[table].append(_fresh_row(table, key, made, rng, profile))
            key += 1
    return made


def write_database(tables: Tables, path: Path) -> None:
    """Write one snapshot. The file is replaced."""
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA foreign_keys = ON")
    for table, columns in COLUMNS.items():
        connection.execute(f"CREATE TABLE {table} ({columns})")
    for table, rows in tables.items():
        names = [part.split()[0] for part in COLUMNS[table].split(", ")]
        marks = ", ".join("?" for _ in names)
        connection.executemany(f"INSERT INTO {table} VALUES ({marks})", [tuple(row[n] for n in names) for row in rows])
    connection.commit()
    connection.execute("VACUUM")
    connection.close()


def write_all(folder: Path) -> list[Path]:
    """Write the base and its copies; returns their paths, base first."""
    base = make_base()
    paths = []
    for profile in PROFILES:
        path = folder / f"{profile.name}.sqlite"
        write_database(base if profile is PROFILES[0] else make_copy(base, profile), path)
        paths.append(path)
    return paths

"""The labelled tool cases as verifier sections, tasks and completions.

One small shop: tools, their effects as data, and its tables. Setting R is an eligible refund above the limit, N one
that is not eligible, S a single call without simulation.
"""

import json

from groupwise.types import Task
from groupwise.verifiers.tools import ToolVerifier

TEXT = {"type": "string"}
NUMBER = {"type": "number"}


def function(name, required=None, **properties):
    parameters = {"type": "object", "properties": properties, "required": required or list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    function("find_user", email=TEXT),
    function("get_order", order_id=TEXT),
    function("check_refund_policy", order_id=TEXT),
    function("request_approval", order_id=TEXT, amount=NUMBER),
    function("issue_refund", order_id=TEXT, amount=NUMBER, approval_id={"type": ["string", "null"]}),
    function("void_refund", order_id=TEXT),
    function("notify", user_id=TEXT, text=TEXT),
]
SINGLE_TOOLS = [
    function("set_tags", order=TEXT, tags={"type": "array", "items": TEXT, "uniqueItems": True}),
    function("set_route", stops={"type": "array", "items": TEXT}),
]

ARG_ORDER = {"order_id": {"$arg": "order_id"}}
FIND_ORDER = {"find": "orders", "where": ARG_ORDER, "as": "order"}
APPROVED = {
    "in": "approvals",
    "where": {**ARG_ORDER, "amount": {"$arg": "amount"}, "approval_id": {"$arg": "approval_id"}},
}
EFFECTS = {
    "find_user": {
        "do": [{"find": "users", "where": {"email": {"$arg": "email"}}, "as": "user"}],
        "returns": {"$row": ["user"]},
    },
    "get_order": {"do": [FIND_ORDER], "returns": {"$row": ["order"]}},
    "check_refund_policy": {"do": [FIND_ORDER], "returns": {"eligible": {"$row": ["order", "eligible"]}}},
    "request_approval": {
        "do": [
            FIND_ORDER,
            {
                "insert": "approvals",
                "values": {"approval_id": {"$new": "A"}, **ARG_ORDER, "amount": {"$arg": "amount"}},
                "as": "approval",
            },
        ],
        "returns": {"approval_id": {"$row": ["approval", "approval_id"]}},
    },
    "issue_refund": {
        "do": [
            FIND_ORDER,
            {"check": {"$equal": [{"$row": ["order", "eligible"]}, True]}, "else": "the order is not eligible"},
            {
                "check": {"$some": [{"$at_most": [{"$arg": "amount"}, 100]}, {"$exists": APPROVED}]},
                "else": "no approval",
            },
            {
                "update": "orders",
                "where": ARG_ORDER,
                "set": {"refunded": {"$sum": [{"$row": ["order", "refunded"]}, {"$arg": "amount"}]}},
            },
        ],
        "returns": {"done": True},
    },
    "void_refund": {
        "do": [{"update": "orders", "where": ARG_ORDER, "set": {"refunded": 0}}],
        "returns": {"done": True},
    },
    "notify": {
        "do": [
            {"find": "users", "where": {"user_id": {"$arg": "user_id"}}, "as": "user"},
            {"insert": "messages", "values": {"user_id": {"$arg": "user_id"}, "text": {"$arg": "text"}}},
        ],
        "returns": {"sent": True},
    },
}
STATE = {
    "users": [{"user_id": "u1", "email": "ana@x.com"}],
    "orders": [
        {"order_id": "W3", "total": 40, "eligible": False, "refunded": 0},
        {"order_id": "W7", "total": 140, "eligible": True, "refunded": 0},
        {"order_id": "W8", "total": 15, "eligible": True, "refunded": 0},
    ],
    "approvals": [],
    "messages": [],
}
WORLD = {"tools": TOOLS, "effects": EFFECTS, "state": STATE, "volatile": {"messages": ["text"]}}


def call(name, **arguments):
    return {"name": name, "arguments": arguments}


FIND, ORDER, CHECK = (
    call("find_user", email="ana@x.com"),
    call("get_order", order_id="W7"),
    call("check_refund_policy", order_id="W7"),
)
SEEK_APPROVAL = call("request_approval", order_id="W7", amount=140)
NOTIFY = call("notify", user_id="u1", text="140.00 refunded")


def task_r():
    """An eligible refund of 140.00: look, check, get an approval, refund with its id, tell the customer."""
    approval = {"$from": ["approve", "approval_id"]}
    gold = [FIND, ORDER, CHECK, SEEK_APPROVAL | {"id": "approve"}]
    gold += [call("issue_refund", order_id="W7", amount=140, approval_id=approval)]
    gold += [call("notify", user_id="u1", text={"$says": ["140.00"]})]
    required = [
        {"id": "find", "tool": "find_user", "arguments": {"email": "ana@x.com"}},
        {"id": "order", "tool": "get_order", "arguments": {"order_id": "W7"}},
        {
            "id": "check",
            "tool": "check_refund_policy",
            "arguments": {"order_id": "W7"},
            "result": {"eligible": True},
            "after": ["find", "order"],
        },
        {
            "id": "approve",
            "tool": "request_approval",
            "arguments": {"order_id": "W7", "amount": 140},
            "after": ["check"],
        },
        {
            "id": "refund",
            "tool": "issue_refund",
            "arguments": {"order_id": "W7", "approval_id": approval, "amount": {"$argument_of": ["approve", "amount"]}},
        },
        {
            "id": "tell",
            "tool": "notify",
            "arguments": {"user_id": {"$from": ["find", "user_id"]}, "text": {"$says": ["140.00"]}},
            "after": ["refund"],
        },
    ]
    columns = {**WORLD, "calls": gold, "required": required, "max_calls": 10}
    return Task(id="R", prompt="refund W7 (140.00) for ana@x.com and tell her the amount", columns=columns)


def task_n():
    """A refund that is not eligible: look, then say no."""
    check = call("check_refund_policy", order_id="W3")
    gold = [FIND, call("get_order", order_id="W3"), check]
    required = [
        {"tool": "find_user", "arguments": {"email": "ana@x.com"}},
        {"tool": "get_order", "arguments": {"order_id": "W3"}},
        {
            "tool": "check_refund_policy",
            "arguments": {"order_id": "W3"},
            "result": {"eligible": False},
            "after": ["find_user", "get_order"],
        },
    ]
    columns = {**WORLD, "calls": gold, "required": required, "answer": ["not eligible"], "forbidden": ["issue_refund"]}
    return Task(id="N", prompt="refund W3 for ana@x.com", columns=columns)


def task_s(gold):
    return Task(id="S", prompt="one call", columns={"tools": SINGLE_TOOLS, "calls": [gold]})


def written(*calls, text=""):
    return "\n".join([*(f"<tool_call>\n{json.dumps(c)}\n</tool_call>" for c in calls), text])


def approval_id(amount=140):
    """What the shop returns when this approval is asked for."""
    verifier = ToolVerifier()
    gold = [call("request_approval", order_id="W7", amount=amount) | {"id": "approve"}]
    gold += [call("issue_refund", order_id="W7", amount=amount, approval_id={"$from": ["approve", "approval_id"]})]
    text = verifier.gold(Task(id="R", prompt="", columns={**WORLD, "calls": gold}))
    return json.loads(text.split("</tool_call>")[1].split(">")[1])["arguments"]["approval_id"]


def tasks():
    """(case id, verifier section, task, completion, expected verdict) of every case."""
    r, n, found = task_r(), task_n(), approval_id()
    refund = call("issue_refund", order_id="W7", amount=140, approval_id=found)

    def refunding(**changes):
        return call("issue_refund", **{"order_id": "W7", "amount": 140, "approval_id": found, **changes})

    look = (FIND, ORDER, CHECK)
    w3 = (FIND, call("get_order", order_id="W3"), call("check_refund_policy", order_id="W3"))
    sorry = "I am sorry, order W3 is not eligible for a refund."
    small = call("request_approval", order_id="W7", amount=14)
    prose = f"I would do this: {json.dumps([*look, SEEK_APPROVAL, refund, NOTIFY])} and that is all."
    completions = {
        "TOOL-01": (r, written(*look, SEEK_APPROVAL, refund, NOTIFY)),
        "TOOL-02": (r, written(ORDER, FIND, CHECK, SEEK_APPROVAL, refund, NOTIFY)),
        "TOOL-03": (r, written(FIND, ORDER, SEEK_APPROVAL, refund, NOTIFY)),
        "TOOL-04": (r, written(FIND, ORDER, SEEK_APPROVAL, refund, CHECK, NOTIFY)),
        "TOOL-05": (r, written(*look, refunding(approval_id="A1"), NOTIFY)),
        "TOOL-06": (r, written(*look, small, refunding(approval_id=approval_id(14)), NOTIFY)),
        "TOOL-07": (r, written(FIND, ORDER, call("check_refund_policy", order_id="W8"), SEEK_APPROVAL, refund, NOTIFY)),
        "TOOL-08": (r, written(*look, SEEK_APPROVAL, refund, refund, NOTIFY)),
        "TOOL-10": (r, written(FIND, ORDER, ORDER, CHECK, SEEK_APPROVAL, refund, NOTIFY)),
        "TOOL-11": (r, written(*look, SEEK_APPROVAL, refunding(amount="140"), NOTIFY)),
        "TOOL-12": (r, written(*look, SEEK_APPROVAL, refunding(amount=140.0), NOTIFY)),
        "TOOL-13": (r, written(*look, SEEK_APPROVAL, refunding(amount=True), NOTIFY)),
        "TOOL-14": (r, written(*look, SEEK_APPROVAL, refunding(force=True), NOTIFY)),
        "TOOL-15": (r, written(*look, SEEK_APPROVAL, call("issue_refund"), NOTIFY)),
        "TOOL-17": (r, written(FIND, ORDER, SEEK_APPROVAL, refund, NOTIFY, text="I have checked the policy.")),
        "TOOL-18": (n, written(*w3, text=sorry)),
        "TOOL-19": (n, "I am sorry, that is not possible."),
        "TOOL-20": (n, written(*w3, call("issue_refund", order_id="W3", amount=40, approval_id=None), text=sorry)),
        "TOOL-21": (r, written(*look, SEEK_APPROVAL, refund, call("notify", user_id="u1", text="1140.00 refunded"))),
        "TOOL-24": (r, prose),
        "TOOL-25": (
            task_s(call("set_tags", order="W7", tags=["a", "b"])),
            written(call("set_tags", order="W7", tags=["b", "a"])),
        ),
        "TOOL-26": (task_s(call("set_route", stops=["a", "b"])), written(call("set_route", stops=["b", "a"]))),
    }
    right = {"TOOL-01", "TOOL-02", "TOOL-10", "TOOL-12", "TOOL-18", "TOOL-25"}
    section = {"kind": "tools"}
    return [
        (case, section, task, completion, "PASS" if case in right else "FAIL")
        for case, (task, completion) in completions.items()
    ]

"""What elementwise operations and reductions are called in C and in ONNX, a row each."""

from __future__ import annotations

from typing import Any

# primitive or own operation: (C, where {f} is the suffix of the dtype's functions and {T} the type of the result;
# the ONNX operator, or a function of (make a node, operands...), or None where ONNX has none)
ELEMENTWISE: dict[str, tuple[str, Any]] = {
    "abs": ("fabs{f}({0})", "Abs"),
    "acos": ("acos{f}({0})", "Acos"),
    "acosh": ("acosh{f}({0})", "Acosh"),
    "add": ("{0} + {1}", "Add"),
    "and": ("{0} & {1}", "And"),
    "asin": ("asin{f}({0})", "Asin"),
    "asinh": ("asinh{f}({0})", "Asinh"),
    "atan": ("atan{f}({0})", "Atan"),
    "atan2": ("atan2{f}({0}, {1})", None),
    "atanh": ("atanh{f}({0})", "Atanh"),
    "cbrt": ("cbrt{f}({0})", None),
    "ceil": ("ceil{f}({0})", "Ceil"),
    "convert_element_type": ("({T}){0}", None),  # ONNX's Cast needs the type
    "cos": ("cos{f}({0})", "Cos"),
    "cosh": ("cosh{f}({0})", "Cosh"),
    "div": ("{0} / {1}", "Div"),
    "eq": ("{0} == {1}", "Equal"),
    "erf": ("erf{f}({0})", "Erf"),
    "erfc": ("erfc{f}({0})", lambda node, x: node("Sub", 1, node("Erf", x))),
    "exp": ("exp{f}({0})", "Exp"),
    "exp2": ("exp2{f}({0})", lambda node, x: node("Pow", 2, x)),
    "expm1": ("expm1{f}({0})", lambda node, x: node("Sub", node("Exp", x), 1)),
    "floor": ("floor{f}({0})", "Floor"),
    "ge": ("{0} >= {1}", "GreaterOrEqual"),
    "gt": ("{0} > {1}", "Greater"),
    "is_finite": ("isfinite({0})", lambda node, x: node("Not", node("Or", node("IsNaN", x), node("IsInf", x)))),
    "le": ("{0} <= {1}", "LessOrEqual"),
    "log": ("log{f}({0})", "Log"),
    "log1p": ("log1p{f}({0})", lambda node, x: node("Log", node("Add", 1, x))),
    "logistic": ("1 / (1 + exp{f}(-{0}))", "Sigmoid"),
    "lt": ("{0} < {1}", "Less"),
    "max": ("{max}({0}, {1})", "Max"),
    "min": ("{min}({0}, {1})", "Min"),
    "mul": ("{0} * {1}", "Mul"),
    "ne": ("{0} != {1}", lambda node, x, y: node("Not", node("Equal", x, y))),
    "neg": ("-{0}", "Neg"),
    "not": ("!{0}", "Not"),
    "or": ("{0} | {1}", "Or"),
    "pow": ("pow{f}({0}, {1})", "Pow"),
    "rem": ("fmod{f}({0}, {1})", lambda node, x, y: node("Mod", x, y, fmod=1)),
    "round": ("rint{f}({0})", "Round"),
    "rsqrt": ("1 / sqrt{f}({0})", lambda node, x: node("Reciprocal", node("Sqrt", x))),
    "select": ("{0} ? {1} : {2}", "Where"),
    "sign": ("({0} > 0) - ({0} < 0)", "Sign"),
    "sin": ("sin{f}({0})", "Sin"),
    "sinh": ("sinh{f}({0})", "Sinh"),
    "sqrt": ("sqrt{f}({0})", "Sqrt"),
    "sub": ("{0} - {1}", "Sub"),
    "tan": ("tan{f}({0})", "Tan"),
    "tanh": ("tanh{f}({0})", "Tanh"),
    "xor": ("{0} ^ {1}", "Xor"),
}

# primitive: (C, that changes `best` by element {0} at position k; the ONNX operator)
REDUCTIONS: dict[str, tuple[str, str]] = {
    "reduce_sum": ("best += {0};", "ReduceSum"),
    "reduce_prod": ("best *= {0};", "ReduceProd"),
    "reduce_max": ("best = {max}(best, {0});", "ReduceMax"),
    "reduce_min": ("best = {min}(best, {0});", "ReduceMin"),
    "reduce_and": ("best &= {0};", "ReduceMin"),
    "reduce_or": ("best |= {0};", "ReduceMax"),
    "argmax": (">", "ArgMax"),
    "argmin": ("<", "ArgMin"),
}

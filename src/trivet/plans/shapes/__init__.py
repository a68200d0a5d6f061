"""Shape rules: which sizes a plan is compiled for, and how requests are made to fit."""

from trivet.plans.shapes.bound import BoundShapes, Variant
from trivet.plans.shapes.rules import Shapes

__all__ = ["BoundShapes", "Shapes", "Variant"]

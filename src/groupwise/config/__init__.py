"""Recipes: one TOML file in, one checked and frozen Recipe out. Read recipe.py first, then one file a section."""

from .curation import CurationSection
from .data import ColumnsSection, DataSection, SplitSection
from .dump import dump_toml
from .evaluation import EvaluationSection
from .load import load_recipe, parse_recipe
from .model import LoraSection, ModelSection
from .recipe import Recipe
from .rollout import RolloutSection
from .stage import AlgorithmSection, GrpoSection, OptimSection, SftSection, StageSection
from .verifier import SqlVerifierSection, VerifierSection

__all__ = [
    "AlgorithmSection",
    "ColumnsSection",
    "CurationSection",
    "DataSection",
    "EvaluationSection",
    "GrpoSection",
    "LoraSection",
    "ModelSection",
    "OptimSection",
    "Recipe",
    "RolloutSection",
    "SftSection",
    "SplitSection",
    "SqlVerifierSection",
    "StageSection",
    "VerifierSection",
    "dump_toml",
    "load_recipe",
    "parse_recipe",
]

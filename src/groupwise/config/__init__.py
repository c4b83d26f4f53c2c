"""Recipes: one TOML file in, one checked and frozen Recipe out. Read recipe.py first, then one file a section."""

from .algorithm_grpo import GrpoSection
from .audit import AuditSection
from .curation import CurationSection
from .data import ColumnsSection, DataSection, SplitSection
from .dump import dump_toml
from .evaluation import EvaluationSection
from .load import load_recipe, parse_recipe
from .model import LoraSection, ModelSection
from .recipe import Recipe
from .rollout import RolloutSection
from .scoring import ScoringRecipe, load_scoring_recipe, scoring_part
from .stage import AlgorithmSection, OptimSection, SftSection, StageSection
from .verifier import ComposeVerifierSection, PartSection, VerifierSection
from .verifier_sql import SqlVerifierSection

__all__ = [
    "AlgorithmSection",
    "AuditSection",
    "ColumnsSection",
    "ComposeVerifierSection",
    "CurationSection",
    "DataSection",
    "EvaluationSection",
    "GrpoSection",
    "LoraSection",
    "ModelSection",
    "OptimSection",
    "PartSection",
    "Recipe",
    "RolloutSection",
    "ScoringRecipe",
    "SftSection",
    "SplitSection",
    "SqlVerifierSection",
    "StageSection",
    "VerifierSection",
    "dump_toml",
    "load_recipe",
    "load_scoring_recipe",
    "parse_recipe",
    "scoring_part",
]

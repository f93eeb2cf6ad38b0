"""Recipes as data, the trials they stand for, and what became of them."""

from typing import TYPE_CHECKING

from gsebo.names import make_lazy

if TYPE_CHECKING:
    from gsebo.experiments.engines import ProcessEngine as ProcessEngine
    from gsebo.experiments.engines import RayEngine as RayEngine
    from gsebo.experiments.fit import execute as execute
    from gsebo.experiments.plan import Candidate as Candidate
    from gsebo.experiments.plan import Cell as Cell
    from gsebo.experiments.plan import Planned as Planned
    from gsebo.experiments.plan import RecipePlan as RecipePlan
    from gsebo.experiments.plan import SearchChoice as SearchChoice
    from gsebo.experiments.plan import Tuning as Tuning
    from gsebo.experiments.plan import make_plan as make_plan
    from gsebo.experiments.recipe import ExperimentRecipe as ExperimentRecipe
    from gsebo.experiments.recipe import TrialBlock as TrialBlock
    from gsebo.experiments.recipe import load_recipe as load_recipe
    from gsebo.experiments.recipe import recipe_names as recipe_names
    from gsebo.experiments.result import Result as Result
    from gsebo.experiments.result import Trial as Trial
    from gsebo.experiments.runner import Runner as Runner
    from gsebo.experiments.runner import RunOutcome as RunOutcome
    from gsebo.experiments.runner import RunWatcher as RunWatcher
    from gsebo.experiments.runner import Slot as Slot
    from gsebo.experiments.runner import TrialBatch as TrialBatch
    from gsebo.experiments.shipped import ShippedResults as ShippedResults
    from gsebo.experiments.store import KnownResults as KnownResults
    from gsebo.experiments.store import Store as Store
    from gsebo.experiments.survey import Stage as Stage
    from gsebo.experiments.survey import make_survey as make_survey
    from gsebo.experiments.survey import select as select

make_lazy(__name__)

"""Estimators: one paper or control each."""

from gsebo.methods.base import GraphClassifier as GraphClassifier
from gsebo.methods.check import check_hypergradient as check_hypergradient
from gsebo.methods.frozen import Frozen as Frozen
from gsebo.methods.gsebo import GSEBO as GSEBO
from gsebo.methods.persistence import load_model as load_model
from gsebo.methods.registry import METHODS as METHODS
from gsebo.methods.registry import MethodInfo as MethodInfo
from gsebo.methods.vanilla import Vanilla as Vanilla

"""Sparse algebra closed under differentiation; knows nothing of graphs or training."""

from typing import TYPE_CHECKING

from gsebo.names import make_lazy

if TYPE_CHECKING:
    from gsebo.sparse.operators import Noise as Noise
    from gsebo.sparse.operators import SparseFeatures as SparseFeatures
    from gsebo.sparse.operators import dropout as dropout
    from gsebo.sparse.operators import edge_softmax as edge_softmax
    from gsebo.sparse.operators import make_features as make_features
    from gsebo.sparse.operators import normal as normal
    from gsebo.sparse.operators import reference_kernels as reference_kernels
    from gsebo.sparse.operators import row_expand as row_expand
    from gsebo.sparse.operators import row_sum as row_sum
    from gsebo.sparse.operators import sddmm as sddmm
    from gsebo.sparse.operators import spmm as spmm
    from gsebo.sparse.operators import uniform as uniform
    from gsebo.sparse.pattern import CompletePattern as CompletePattern
    from gsebo.sparse.pattern import Pattern as Pattern
    from gsebo.sparse.symbol import Untraceable as Untraceable
    from gsebo.sparse.types import EntryTypes as EntryTypes
    from gsebo.sparse.types import Relation as Relation

make_lazy(__name__)

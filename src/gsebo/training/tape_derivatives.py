"""The derivatives of node classification as programs: no autograd inside the loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, cast, final

import torch
from torch import Tensor

from gsebo.bilevel import Optimizer, Tree
from gsebo.bilevel.derivatives import Compilable, StepsAtOnce
from gsebo.bilevel.optimizers import AdamRule
from gsebo.bilevel.tree import require_grad, vjp
from gsebo.sparse import Noise
from gsebo.sparse.numba_calls import KernelCall
from gsebo.sparse.symbol import Strengths, Symbol
from gsebo.tape import Program, Reach, Tape, backend, trace
from gsebo.training.compiled_steps import CompiledSteps, StepCalls

if TYPE_CHECKING:
    from gsebo.training.problem import NodeClassification

FLAT = "weights"
"""Name of the vector of all weights in its tree."""

StrengthsOf = Callable[[Tree], Tensor]


@final
class Programs:
    """The programs of one problem, for one run or for several seeds at once.

    Raises:
        Untraceable: There are no kernel calls for its network or device.
    """

    def __init__(self, problem: NodeClassification, seeds: list[int]) -> None:
        self._problem = problem
        self._seeds = seeds
        self._outer: dict[bool, Program] = {}
        self._compiled: dict[tuple[AdamRule, int, int], CompiledSteps] = {}
        # Dropout is only written down where there is some.
        self._tape, self._quiet_tape = (
            self._trace(noise) for noise in (Noise(0, 0), None)
        )
        # Asked here, so that nothing is found missing in the middle of a fit.
        backend.tape_kernels_for(problem.initial_strengths)

    @cached_property
    def training(self) -> Program:
        """Inner loss and its gradient."""
        return self._inner(lanes=1)

    @cached_property
    def replay(self) -> Program:
        """Derivatives of the inner gradient."""
        return self._inner(lanes=2)

    def compiled(self, rule: AdamRule, steps: int, kept: int) -> CompiledSteps:
        """So many steps of Adam in compiled code."""
        key = rule, steps, kept
        if key not in self._compiled:
            replay = _ProgramCalls(self.replay) if kept else None
            training = _ProgramCalls(self.training)
            # Each remembers steps in memory of its own: only the last one stays.
            self._compiled = {key: CompiledSteps(rule, training, replay, steps, kept)}
        return self._compiled[key]

    def outer(self, *, direct_term: bool) -> Program:
        """Outer loss and its gradients, by the strengths only with the direct term."""
        if direct_term not in self._outer:
            problem = self._problem
            self._outer[direct_term] = Program(
                self._quiet_tape,
                self._reach(self._quiet_tape, problem.outer_nodes),
                problem.features,
                problem.labels[problem.outer_nodes],
                mean=False,
                seeds=self._seeds,
                lanes=1,
                strength_gradient=direct_term,
            )
        return self._outer[direct_term]

    @cached_property
    def evaluation(self) -> Program:
        """Scores of all nodes."""
        problem = self._problem
        nodes = torch.arange(problem.graph.num_nodes, device=problem.labels.device)
        return Program(
            self._quiet_tape,
            self._reach(self._quiet_tape, nodes),
            problem.features,
            None,
            mean=False,
            seeds=self._seeds,
            lanes=1,
            strength_gradient=False,
        )

    def _inner(self, *, lanes: int) -> Program:
        problem = self._problem
        return Program(
            self._tape,
            self._inner_reach,
            problem.features,
            problem.labels[problem.inner_nodes],
            mean=problem.inner_reduction == "mean",
            seeds=self._seeds,
            lanes=lanes,
            strength_gradient=lanes == 2,
            decay=problem.weight_decay,
        )

    @cached_property
    def _inner_reach(self) -> Reach:
        return self._reach(self._tape, self._problem.inner_nodes)

    def _reach(self, tape: Tape, nodes: Tensor) -> Reach:
        pattern = self._problem.graph.pattern
        return Reach(pattern, nodes, tape.depth, tape.everywhere_from)

    def _trace(self, noise: Noise | None) -> Tape:
        problem, weights = self._problem, self._problem.trained_weights
        features = Symbol.of_features(problem.features.shape[1], weights)
        strengths = Strengths(problem.initial_strengths.dim() == 2)
        pattern = problem.graph.pattern
        return trace(problem.backbone(features, pattern, strengths, noise), weights)


@final
class _ProgramCalls(StepCalls):
    """A program as calls among others."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.weights, self.tangent = program.weights.value, program.weights.tangent
        self.step, self.loss = program.step, program.loss
        self.drawn = program.drawn

    def calls_to(self, gradient: Tensor, *, draw: bool = True) -> list[KernelCall]:
        return cast(list[KernelCall], self._program.calls_to(gradient, draw=draw))


@final
class TapeDerivatives(Compilable):
    """Derivatives at fixed strengths, with a leading axis of replicas or without.

    ``recorded`` says whether derivatives by the outer variables will be asked for.
    """

    def __init__(
        self,
        programs: Programs,
        strengths_of: StrengthsOf,
        outer: Tree,
        *,
        replicated: bool,
        recorded: bool,
    ) -> None:
        self._programs = programs
        self._outer = require_grad(outer) if recorded else outer
        self._replicated = replicated
        # Recorded once: both derivatives by the outer variables go back through it.
        with torch.set_grad_enabled(recorded and bool(outer)):
            self._recorded = strengths_of(self._outer)
        strengths = self._recorded.detach()
        self._shape = strengths.shape
        # What nothing is learned of is the same for all replicas.
        stacked = strengths if replicated and outer else strengths.unsqueeze(0)
        # Without layers of their own, all propagations read the first.
        self._strengths = stacked if stacked.dim() == 3 else stacked.unsqueeze(1)
        self._loaded: set[int] = set()

    def inner_gradient(self, weights: Tree, step: int) -> tuple[Tree, Tensor]:
        program = self._ready(self._programs.training)
        program.weights.value.copy_(weights[FLAT])
        program.run(step)
        gradients = self._like_weights(program.weights.gradient).clone()
        return {FLAT: gradients}, self._each(program.loss).clone()

    def compiled(
        self, optimizer: Optimizer, steps: int, kept: int
    ) -> StepsAtOnce | None:
        if optimizer.adam is None or self._strengths.device.type != "cpu":
            return None
        self._ready(self._programs.training)
        if kept:
            self._ready(self._programs.replay)
        return self._programs.compiled(optimizer.adam, steps, kept)

    def outer_gradient(
        self, weights: Tree, *, direct_term: bool
    ) -> tuple[Tensor, Tree, Tree]:
        program = self._ready(self._programs.outer(direct_term=direct_term))
        program.weights.value.copy_(weights[FLAT])
        program.run()
        by_weights = self._like_weights(program.weights.gradient).clone()
        by_outer = self._to_outer(program) if direct_term else {}
        return self._each(program.loss).clone(), {FLAT: by_weights}, by_outer

    def pull_back(self, weights: Tree, step: int, cotangent: Tree) -> Tree:
        """Run the program with tangents; strengths gather inside it."""
        program = self._ready(self._programs.replay)
        program.weights.value.copy_(weights[FLAT])
        program.weights.tangent.copy_(cotangent[FLAT])
        program.run(step)
        return {FLAT: self._like_weights(program.weights.gradient).clone()}

    def scores(self, weights: Tree) -> Tensor:
        """Scores of every node, ``[..., nodes, classes]``, until the next call."""
        program = self._ready(self._programs.evaluation)
        program.weights.value.copy_(weights[FLAT])
        program.run()
        return program.output if self._replicated else program.output[0]

    def gathered(self) -> Tree:
        """Hand the gathered cotangent of the strengths to the outer variables."""
        return self._to_outer(self._ready(self._programs.replay))

    def _ready(self, program: Program) -> Program:
        """Load the strengths into a program before its first use."""
        if id(program) not in self._loaded:
            program.strengths.load(self._strengths)
            self._loaded.add(id(program))
        return program

    def _to_outer(self, program: Program) -> Tree:
        if not self._outer:
            return {}
        layers, entries = self._strengths.shape[1:]
        found = program.strengths.gradient(layers, entries).view(self._shape)
        (by_outer,) = vjp(
            {"strengths": self._recorded},
            {"strengths": found},
            self._outer,
            retain_graph=True,
        )
        return by_outer

    def _like_weights(self, flat: Tensor) -> Tensor:
        return flat if self._replicated else flat[0]

    def _each(self, loss: Tensor) -> Tensor:
        return loss if self._replicated else loss[0]

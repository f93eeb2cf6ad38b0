"""The best on held-out nodes is taken, and the hopeless are given up early."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gsebo.methods.auto.elimination import (
    Configuration,
    Elimination,
    HeldOutCurve,
    HeldOutScore,
    Judge,
    eliminate,
    evaluated,
    told,
)
from gsebo.methods.folds import Fold

SIZE = 100
NODES = torch.arange(SIZE)
A, B, C = (Configuration(name, "given") for name in "abc")


def curve(*accuracies: float, loss: float = 1.0) -> HeldOutCurve:
    """Right on the first nodes, as many as the accuracy says, at each evaluation."""
    right = torch.stack([round(SIZE * each) > NODES for each in accuracies])
    return HeldOutCurve(right, torch.full(right.shape, loss), 0.5)


def compare(
    curves: dict[Configuration, HeldOutCurve], *, folds: int = 3, enough: int = 10**9
) -> Elimination:
    tried = []

    def try_on(one: Configuration, number: int) -> HeldOutCurve:
        tried.append((one, number))
        return curves[one]

    fold = Fold(NODES, NODES, NODES)
    ended = eliminate(list(curves), [fold] * folds, try_on, enough)
    assert len(set(tried)) == len(tried)
    return ended


def test_the_most_accurate_wins() -> None:
    ended = compare({A: curve(0.72), B: curve(0.75), C: curve(0.74)})
    assert ended.finished == (B, C, A)
    assert ended.scores[B].fold_accuracy == (0.75, 0.75, 0.75)
    assert ended.scores[B].seconds == 1.5


def test_of_equals_the_smaller_loss_and_then_the_first_wins() -> None:
    ended = compare({A: curve(0.7, loss=2.0), B: curve(0.7), C: curve(0.7)})
    assert ended.finished == (B, C, A)


def test_the_hopeless_are_given_up() -> None:
    ended = compare({A: curve(0.1), B: curve(0.75), C: curve(0.74)})
    assert ended.finished == (B, C)
    assert len(ended.scores[A].fold_accuracy) == 1


def test_a_lonely_winner_runs_no_further() -> None:
    ended = compare({A: curve(0.1), B: curve(0.9)})
    assert ended.winner == B and len(ended.scores[B].fold_accuracy) == 1


def test_enough_is_enough() -> None:
    ended = compare({A: curve(0.7), B: curve(0.71)}, enough=150)
    assert {len(score.fold_accuracy) for score in ended.scores.values()} == {2}


# --- one score -----------------------------------------------------------------------


def test_the_best_evaluation_is_best_over_all_folds() -> None:
    rising = curve(0.1, 0.1, 0.3, 0.5, 0.6, 0.6, 0.6, 0.6)
    falling = curve(0.6, 0.6, 0.6, 0.6, 0.5, 0.3, 0.1, 0.1)
    score = HeldOutScore.of([rising, falling])
    assert score.best == 4
    assert score.fold_accuracy == (0.5, 0.6)
    assert abs(score.accuracy - 0.55) < 1e-9


def test_a_single_evaluation_by_chance_is_not_the_best() -> None:
    lucky = curve(0.1, 0.9, 0.1, 0.1, 0.1, 0.1, 0.8, 0.8, 0.8, 0.8, 0.8)
    assert HeldOutScore.of([lucky]).best > 7


def test_by_loss_the_accuracy_does_not_matter() -> None:
    both = curve(0.5, 0.9)
    loss = torch.stack([torch.full((SIZE,), 0.1), torch.full((SIZE,), 0.2)])
    score = HeldOutScore.of([HeldOutCurve(both.right, loss, 0.0)], by_loss=True)
    assert score.best == 1 and abs(score.loss - 0.1) < 1e-6


def test_who_ended_early_stays_as_it_ended() -> None:
    score = HeldOutScore.of([curve(0.5, 0.7), curve(0.1, 0.2, 0.3, 0.9, 0.9, 0.9)])
    assert score.best >= 4
    assert score.fold_accuracy == (0.7, 0.9)


@given(first=st.integers(0, SIZE), second=st.integers(0, SIZE))
def test_a_lead_is_the_difference(first: int, second: int) -> None:
    left = HeldOutScore.of([curve(first / SIZE)])
    right = HeldOutScore.of([curve(second / SIZE)])
    lead, error = left.lead_over(right)
    back, same = right.lead_over(left)
    assert abs(lead - (first - second) / SIZE) < 1e-9
    assert abs(lead + back) < 1e-9 and error == same > 0


def test_an_evaluation_compares_with_labels() -> None:
    scores = torch.tensor([[2.0, 0.0], [0.0, 1.0], [-1000.0, 1000.0]]).log_softmax(-1)
    right, loss = evaluated(scores, torch.tensor([0, 0, 0]))
    assert right.tolist() == [True, False, False]
    assert loss.tolist() == [float(-scores[0, 0]), float(-scores[1, 0]), 100.0]


# --- by a metric ---------------------------------------------------------------------

LABELS = (NODES % 2, (NODES + 1) % 2)
SECONDS = st.lists(st.integers(1, 9), min_size=SIZE, max_size=SIZE)


def curve_of(second: torch.Tensor, labels: torch.Tensor) -> HeldOutCurve:
    """Of probabilities of the second class, ``[evaluations, nodes]``."""
    looks = [torch.stack([1 - row, row], dim=-1).log() for row in second]
    pairs = [evaluated(look, labels) for look in looks]
    right, loss = (torch.stack(list(column)) for column in zip(*pairs, strict=True))
    known = torch.stack([told(look) for look in looks])
    return HeldOutCurve(right, loss, 0.5, told=known)


@given(first=SECONDS, second=SECONDS)
@settings(max_examples=20)
def test_by_the_metric_accuracy_is_by_accuracy(
    first: list[int], second: list[int]
) -> None:
    curves = [
        curve_of((torch.tensor([row]) + 0.1) / 10, labels)
        for row, labels in zip((first, second), LABELS, strict=True)
    ]
    plain = HeldOutScore.of(curves)
    judged = HeldOutScore.of(curves, judge=Judge("accuracy", 2, LABELS))
    assert torch.equal(plain.right, judged.right)
    assert abs(judged.score - plain.accuracy) < 1e-12
    assert judged.fold_score == plain.fold_accuracy


def test_the_evaluation_is_the_best_by_the_metric() -> None:
    labels = LABELS[0]
    rank = torch.where(labels == 1, 0.6, 0.4)
    looks = torch.stack([0.5 + (rank - 0.5) * sign for sign in (-1, 1, -1)])
    # Each is right for five evaluations on end, which is as many as are averaged.
    curve = curve_of(looks.repeat_interleave(5, dim=0), labels)
    score = HeldOutScore.of([curve], judge=Judge("roc_auc", 2, (labels,)))
    assert 6 <= score.best <= 10 and score.score == 1


def test_the_metric_decides() -> None:
    # One is right more often, the other has more pairs in order.
    labels = (NODES >= 80).long()
    rank = NODES / SIZE
    accurate = torch.where(labels == 1, 0.6, 0.4)
    accurate[80:90], accurate[:5] = 0.0, 0.1
    ordered = 0.5 + rank / 10
    curves = {A: curve_of(accurate[None], labels), B: curve_of(ordered[None], labels)}
    fold = Fold(NODES, NODES, NODES)
    for judge, winner in ((None, A), (Judge("roc_auc", 2, (labels,) * 3), B)):
        ended = eliminate(
            [A, B], [fold] * 3, lambda one, _: curves[one], 10**9, judge=judge
        )
        assert ended.winner == winner
    assert ended.scores[B].score == 1.0 and ended.scores[A].score < 0.8
    assert ended.scores[A].accuracy > ended.scores[B].accuracy
    lead, error = ended.scores[B].lead_over(ended.scores[B])
    assert lead == 0 and error == 1 / SIZE / len(ended.scores[B].fold_score)


def test_the_error_is_that_of_nodes_drawn_again() -> None:
    rng = torch.Generator().manual_seed(0)
    labels = (torch.rand(400, generator=rng) < 0.5).long()
    right = torch.rand(400, generator=rng) < 0.8
    second = torch.where(right == (labels == 1), 0.9, 0.1)
    score = HeldOutScore.of(
        [curve_of(second[None], labels)], judge=Judge("accuracy", 2, (labels,))
    )
    assert score.judge is not None
    expected = (score.accuracy * (1 - score.accuracy) / 400) ** 0.5
    assert 0.7 * expected < score.judge.error(score.told) < 1.4 * expected

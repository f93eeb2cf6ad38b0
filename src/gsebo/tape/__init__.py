"""A network as a list of kernel calls: gradients and second derivatives by hand.

``trace`` writes down what a network does, ``Reach`` says for which nodes it has to be
done, and ``Program`` runs it, forwards and backwards, on numbers or on numbers with
their tangents. Nothing is recorded or allocated while a program runs.
"""

from gsebo.tape.program import Program as Program
from gsebo.tape.trace import Reach as Reach
from gsebo.tape.trace import Tape as Tape
from gsebo.tape.trace import trace as trace

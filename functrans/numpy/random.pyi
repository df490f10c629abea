"""Types of functrans.numpy.random: those of numpy.random."""

from numpy.random import *

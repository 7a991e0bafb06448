"""The tests, run by the Python that has llama.cpp: those with one of the arguments in their names, or all."""
import os
import sys
import unittest

loader = unittest.TestLoader()
loader.testNamePatterns = [f"*{name}*" for name in sys.argv[1:]] or None
tests = loader.discover(os.path.dirname(os.path.abspath(__file__)))
if not tests.countTestCases():
    sys.exit("kiln: no test has such a name")
sys.exit(not unittest.TextTestRunner(verbosity=2).run(tests).wasSuccessful())

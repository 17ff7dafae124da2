"""Holds rewritten models against known outputs in ONNX Runtime.

Every folder has before.onnx and model.onnx, the same graph before and after
planning, and in.npz and want.npz. A graph that ONNX Runtime does not take
before planning is named and left out.

usage: splits.py FOLDER ...
"""

import os
import sys

import numpy as np
import onnx

from oracle import compare, run, session


def one(folder):
    path = os.path.join(folder, "model.onnx")
    want, feed = np.load(os.path.join(folder, "want.npz")), np.load(os.path.join(folder, "in.npz"))
    try:
        onnx.checker.check_model(onnx.load(os.path.join(folder, "before.onnx"), load_external_data=False), full_check=True)
        session(os.path.join(folder, "before.onnx"))
    except Exception as e:
        print(f"left out {os.path.basename(folder)}: {str(e).strip().splitlines()[0]}")
        return
    onnx.checker.check_model(onnx.load(path, load_external_data=False), full_check=True)
    s = session(path)
    compare(os.path.basename(folder), run(s, {i.name: feed[i.name] for i in s.get_inputs()}), {k: want[k] for k in want})
    print(f"ok {os.path.basename(folder)}")


def main():
    failed = 0
    for folder in sys.argv[1:]:
        try:
            one(folder)
        except Exception as e:  # every folder is tried; the exit status tells
            failed += 1
            print(f"FAILED {os.path.basename(folder)}: {e}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

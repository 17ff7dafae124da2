#!/bin/sh
# Compiles an emitted CUDA project for sm_80 and sm_90 with the CUDA 13 wheels from PyPI; no GPU is needed.
#
#   .ci/nvcc.sh DIR        DIR holds step.cu; the program is written to DIR/step_cuda
#
# The wheels go into a virtual environment that is kept in $MEMOC_CUDA_VENV (default: the user's cache directory).
# Exit status 77 means that the wheels could not be had (no python3, no network): nothing was checked.
set -eu

dir=${1:?usage: nvcc.sh DIR}
venv=${MEMOC_CUDA_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/memoc/cuda13}
archs=${MEMOC_CUDA_ARCHS:-80 90}

# The compiler's parts are one version. The libraries have versioned names only.
wheels="
nvidia-cuda-nvcc==13.5.37
nvidia-cuda-crt==13.5.37
nvidia-nvvm==13.5.37
nvidia-cuda-runtime==13.5.37
nvidia-cuda-cccl==13.3.5.0.6
nvidia-cublas==13.10.0.20
"

skip() {
	echo "nvcc.sh: $1: nothing was checked" >&2
	exit 77
}

find_root() {
	for r in "$venv"/lib/python3*/site-packages/nvidia/cu13; do
		if [ -x "$r/bin/nvcc" ] && [ -f "$r/include/cublasLt.h" ]; then
			echo "$r"
			return 0
		fi
	done
	return 1
}

if ! root=$(find_root); then
	command -v python3 >/dev/null 2>&1 || skip "no python3"
	python3 -m venv "$venv" || skip "no virtual environment"
	# shellcheck disable=SC2086
	"$venv/bin/pip" install --quiet --disable-pip-version-check $wheels || skip "the wheels cannot be installed"
	root=$(find_root) || { echo "nvcc.sh: no nvcc under $venv" >&2; exit 1; }
fi

gencode=
for a in $archs; do
	gencode="$gencode -gencode arch=compute_$a,code=sm_$a"
done

include="-I$root/include"
[ -d "$root/include/cccl" ] && include="$include -I$root/include/cccl"

objects=
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$dir"
for src in step.cu main.cpp memoc/*.cpp memoc/*.cu; do
	case $src in *_host.cpp) continue ;; esac
	object=$work/$(basename "$src").o
	# shellcheck disable=SC2086
	"$root/bin/nvcc" -std=c++17 -O2 -x cu --extended-lambda -Xcompiler -Wall $gencode $include -I. -c "$src" -o "$object"
	objects="$objects $object"
done
# shellcheck disable=SC2086
"$root/bin/nvcc" $gencode -L"$root/lib" -Xlinker -rpath -Xlinker "$root/lib" -cudart static $objects -l:libcublasLt.so.13 -o step_cuda
echo "nvcc.sh: built $dir/step_cuda for sm_$(echo "$archs" | sed 's/ /, sm_/g')"

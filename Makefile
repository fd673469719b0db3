# SPDX-License-Identifier: Apache-2.0
# The front door. CMake builds everything; these targets see to what it needs
# (system packages, a virtual environment, torch) and call it. "make help".

python := .venv/bin/python
suites := $(python) tools/setup/suites.py
# Looked for when it is used: the set-up may just have installed it.
generator = $(if $(shell command -v ninja),-G Ninja)
jobs := $(shell nproc)

system_ready := build/.system
venv_ready := .venv/.ready
package_ready := build/.package
shim_ready := build/.shim
package_sources := $(shell find CMakeLists.txt pyproject.toml cmake cuda src include \
    python -type f -not -path '*/__pycache__/*')

.PHONY: build tree demo test test-full bench lint format asan tsan soak setup clean \
    distclean help

# The shim is one C++ file, which takes one core as long as the tree takes the others.
build: $(package_ready) ## build everything and install it into .venv (default)
	@$(MAKE) --no-print-directory -j2 $(shim_ready) tree

tree:
	@cmake -S . -B build $(generator) --log-level=NOTICE -DWEFT_WERROR=ON \
	    -DWEFT_PYTHON=ON -DPython_EXECUTABLE=$(CURDIR)/$(python)
	@cmake --build build --parallel $(jobs)

demo: $(package_ready) ## train a small model on several ranks, with timings
	@$(python) examples/demo.py

test: build ## all tests, plain and under sanitizers; what CI runs
	@$(suites)

test-full: build ## the same with every combination of parameters
	@WT_FULL=1 FUZZ_SECONDS=60 $(suites)

bench: build ## measure the collectives against MPI libraries
	@.venv/bin/weft bench collectives

lint: build ## formatting and static analysis
	@tools/setup/lint

format: ## lay out the C files as .clang-format says
	@find include src tests bench python -name '*.[ch]' | \
	    xargs clang-format -i

asan: $(venv_ready) ## tests of C and of the extensions under ASan and UBSan
	@$(suites) asan asan_python

tsan: $(venv_ready) ## C tests under ThreadSanitizer
	@$(suites) tsan

soak: $(venv_ready) ## 10^9 store operations with faults, then tests of ranks, 30 min
	@WT_AGAIN=0 $(suites) soak

setup: ## look again for system and Python packages that were missing
	@rm -f $(system_ready) $(venv_ready)
	@$(MAKE) --no-print-directory $(venv_ready)

clean: ## remove what was built; .venv stays
	rm -rf build build-asan build-tsan build-fuzz

distclean: clean ## remove .venv too
	rm -rf .venv

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' \
	    Makefile

$(system_ready): tools/setup/system
	@mkdir -p build
	@tools/setup/system
	@touch $@

$(venv_ready): tools/setup/venv.py pyproject.toml | $(system_ready)
	@python3 tools/setup/venv.py
	@touch $@

$(package_ready): $(venv_ready) tools/setup/package.py $(package_sources)
	@$(python) tools/setup/package.py
	@touch $@

# The part that is compiled against torch, if there is any.
$(shim_ready): $(package_ready)
	@if ! $(python) -c "import torch" 2>/dev/null; then \
	    echo "setup: no torch, so there is no init_process_group(\"weft\")"; \
	elif ! command -v $${CXX:-c++} >/dev/null; then \
	    echo "setup: no C++ compiler, so no init_process_group(\"weft\")"; \
	else \
	    $(python) -m weft.torch.build; \
	fi
	@touch $@

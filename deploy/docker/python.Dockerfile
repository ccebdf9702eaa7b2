# SPDX-License-Identifier: Apache-2.0

# The image of Python training scripts and of the ps daemons that they use. To be built in the
# repository's root after python/build_wheel.sh --out=dist has made the wheel:
#
#   docker build -f deploy/docker/python.Dockerfile -t holdfast-python .
#
# BASE      Python 3.10 or later on Debian 12 or later, or another system with its glibc.
# WHEELS    A folder of the build context with the wheel, and other wheels to install.
# PACKAGES  Additional packages for the scripts, from the package index.
ARG BASE=python:3.11-slim
FROM ${BASE}
ARG WHEELS=dist
ARG PACKAGES=
COPY ${WHEELS}/*.whl /tmp/wheels/
RUN pip install --no-cache-dir --find-links=/tmp/wheels /tmp/wheels/holdfast-*.whl ${PACKAGES} && rm -r /tmp/wheels && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin holdfast
# Programs write only to volumes and /tmp, so the root file system may be read-only.
USER 10001:10001
# A container's command is ps_server, holdfast, or python with a script.
CMD ["holdfast", "--help"]

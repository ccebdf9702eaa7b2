# The image of training scripts in Python, and of the ps daemons that they use, from the
# repository's root once python/build_wheel.sh --out=dist has made the wheel:
#
#   docker build -f deploy/docker/python.Dockerfile -t holdfast-python .
#
# BASE      Python 3.10 or later on Debian 12 or later, or another system with its glibc.
# WHEELS    A folder of the build context with the wheel, and others that are to be installed.
# PACKAGES  Further packages of the scripts, from the package index.
ARG BASE=python:3.11-slim
FROM ${BASE}
ARG WHEELS=dist
ARG PACKAGES=
COPY ${WHEELS}/*.whl /tmp/wheels/
RUN pip install --no-cache-dir --find-links=/tmp/wheels /tmp/wheels/holdfast-*.whl ${PACKAGES} && rm -r /tmp/wheels && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin holdfast
# Nothing is written but to volumes and /tmp, so the root file system may be read-only.
USER 10001:10001
# A container's command is ps_server, holdfast, or python with a script.
CMD ["holdfast", "--help"]

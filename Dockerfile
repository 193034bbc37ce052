# levelhead on a CPU:
#   docker build -t levelhead .
#   docker run --rm -v "$PWD:/work" levelhead audit bert-base-uncased -o audit
FROM python:3.12-slim
ENV PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1
# The CPU build of torch first: the default one brings gigabytes for GPUs.
RUN python -m pip install torch --index-url https://download.pytorch.org/whl/cpu
COPY pyproject.toml README.md LICENSE /source/
COPY src /source/src
RUN python -m pip install '/source[report]' && rm -rf /source
RUN useradd --create-home user && mkdir /work && chown user /work
USER user
WORKDIR /work
ENTRYPOINT ["levelhead"]
CMD ["--help"]

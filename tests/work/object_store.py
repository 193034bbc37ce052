"""An object store on loopback: moto's S3 server, and the environment that leads there."""

from contextlib import contextmanager
from datetime import timedelta

import boto3
import pytest
from fsspec import AbstractFileSystem
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer


@contextmanager
def bucket(name="bucket", app=lambda app: app):
    """The URL of a new bucket; processes that are started within find it, too.

    `app` takes the server's WSGI application and gives the one that is served.
    """
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    server._server.app = app(server._server.app)
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for key, value in (
            ("AWS_ENDPOINT_URL", f"http://{host}:{port}"),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_DEFAULT_REGION", "us-east-1"),
        ):
            patch.setenv(key, value)
        AbstractFileSystem.clear_instance_cache()
        boto3.client("s3").create_bucket(Bucket=name)
        try:
            yield f"s3://{name}"
        finally:
            AbstractFileSystem.clear_instance_cache()
            server.stop()


def age_objects(url, *, seconds):
    """Make the server believe that it got the objects of a folder earlier."""
    name, _, prefix = url.removeprefix("s3://").partition("/")
    keys = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].get_bucket(name).keys
    aged = [key for path, key in keys.items() if path.startswith(f"{prefix}/")]
    assert aged
    for key in aged:
        key.last_modified -= timedelta(seconds=seconds)

"""The command ``npufw keygen``."""

from __future__ import annotations

import errno
import json
import os

import click

__all__ = ["keygen"]


@click.command()
@click.argument("key", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def keygen(key: str, as_json: bool) -> None:
    """Make a signing key, KEY and KEY.pub; print the hash to fuse.

    KEY is readable by you alone. A file of its name is never overwritten: a lost key cannot be made
    again. KEY signs blobs with "npuc compile --sign KEY"; a device takes those alone in whose eFuse
    its hash is blown.

    \b
    Examples:
      npufw keygen maker.key
      npuc compile models/digits.txt --sign maker.key
    """
    from npuabi.files import write_atomically
    from npuabi.signature import key_hash_of_file, make_key

    public_path = f"{key}.pub"
    for path in (key, public_path):
        if os.path.lexists(path):
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    private, public = make_key()
    digest = key_hash_of_file(public).hex()
    write_atomically(key, private, new_mode=0o600)
    write_atomically(public_path, public)
    if as_json:
        found = {"schema": 1, "key": key, "public_key": public_path, "hash": digest}
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(f"{key}: keep it secret; {public_path}: its public key")
    click.echo(f"hash to fuse: {digest}")

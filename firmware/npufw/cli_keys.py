"""The commands about keys: ``npufw keygen`` and ``npufw fuse``."""

from __future__ import annotations

import errno
import json
import os

import click

from npuabi.commands import RealFile

__all__ = ["fuse", "keygen"]


@click.command()
@click.argument("key", type=RealFile())
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
    write_atomically(public_path, public)
    try:
        write_atomically(key, private, new_mode=0o600)
    except OSError:
        os.unlink(public_path)  # half a pair would be in the way of the next try
        raise
    if as_json:
        found = {"schema": 1, "key": key, "public_key": public_path, "hash": digest}
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(f"{key}: keep it secret; {public_path}: its public key")
    click.echo(f"hash to fuse: {digest}")


@click.command()
@click.argument("efuse", type=RealFile())
@click.argument("key", type=click.Path())
@click.option("--target", default="edge", show_default=True, help="Target: name or TOML file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def fuse(efuse: str, key: str, target: str, as_json: bool) -> None:
    """Make the die of EFUSE take what KEY signed, and nothing else.

    The hash of the public key in the file KEY is blown into the eFuse array in EFUSE, for ever. The
    array is made, blank, when there is none.

    \b
    Examples:
      npufw fuse die7.fuses maker.key.pub
      npufw run digits.bin --die die7.fuses
    """
    from npuabi.files import write_atomically
    from npuabi.signature import MAX_KEY_FILE_BYTES, key_hash_of_file
    from npuabi.target import load_target
    from npufw.dies import read_fuse_file
    from npufw.efuse import read_efuse, rows_of, size_for, with_key
    from npufw.hostfiles import read_file

    cores = load_target(target).cores
    digest = key_hash_of_file(read_file(key, MAX_KEY_FILE_BYTES))
    fuses = read_fuse_file(efuse) if os.path.exists(efuse) else bytes(size_for(cores))
    read_efuse(rows_of(fuses), len(fuses), cores)
    write_atomically(efuse, with_key(fuses, digest))
    if as_json:
        click.echo(json.dumps({"schema": 1, "efuse": efuse, "hash": digest.hex()}, indent=2))
        return
    click.echo(f"{efuse}: takes programs signed with the key of hash {digest.hex()} alone")

"""A certificate authority made for one run, and the certificates it signs."""

import os
import subprocess

from . import processes

P256 = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
RSA = ("-newkey", "rsa:2048", "-nodes")


class Authority:
    """Its certificates are for a day."""

    def __init__(self, openssl, folder):
        os.mkdir(folder)
        os.chmod(folder, 0o755)
        self.openssl, self.folder = openssl, folder
        self.ca = self._authority("ca")

    def issue(self, name, host, by="ca", days=1, key=P256):
        """NAME.pem and NAME.key for a host."""
        path = lambda file: f"{self.folder}/{file}"
        self._run("req", *key, "-keyout", path(f"{name}.key"), "-out", path("request"), "-subj", "/CN=bench",
                  "-addext", f"subjectAltName=DNS:{host}")
        self._run("x509", "-req", "-in", path("request"), "-CA", path(f"{by}.pem"), "-CAkey", path(f"{by}.key"),
                  "-days", str(days), "-copy_extensions", "copy", "-out", path(f"{name}.pem"))

    def _authority(self, name):
        path = f"{self.folder}/{name}"
        self._run("req", "-x509", *P256, "-keyout", f"{path}.key", "-out", f"{path}.pem", "-subj", f"/CN={name}",
                  "-days", "1")
        return f"{path}.pem"

    def _run(self, *argv):
        result = subprocess.run([self.openssl, *argv], capture_output=True, text=True)
        if result.returncode:
            raise processes.Failed(f"openssl {argv[0]}: {result.stderr.strip()}")

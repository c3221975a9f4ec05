"""The HTTP API inside a Jupyter server: thin handlers over `jupyter_sandbox.service`.

``extension`` (traits, start and stop) · ``access`` (who holds the store: this server or another) · ``forward`` (to the
other) · ``routes`` (the table) · ``handler`` (one request) · ``http`` (JSON in, JSON out) · ``identity`` (the store's
token) · ``idle`` (when a private server ends) ·
``daemon`` (a server of its own).
"""

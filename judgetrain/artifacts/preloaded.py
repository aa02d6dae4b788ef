"""The last import of a fork server: it serves from here on, and sees the end of its parent by itself."""

from judgetrain.artifacts.preloading import stop

stop()

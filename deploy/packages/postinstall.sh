#!/bin/sh
# Makes systemd read the unit. A bridge that runs restarts with the new program; if it does not start, the installation
# is still a good one, and systemctl status says why.
[ -d /run/systemd/system ] && [ -z "$DPKG_ROOT" ] || exit 0
systemctl daemon-reload || true
systemctl try-restart mcp-bridge.service || true

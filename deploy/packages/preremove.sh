#!/bin/sh
# Stops the service before its program goes. An upgrade, "upgrade" for dpkg and 1 for rpm, leaves it running.
case "$1" in remove | 0) ;; *) exit 0 ;; esac
[ -d /run/systemd/system ] && [ -z "$DPKG_ROOT" ] || exit 0
systemctl disable --now mcp-bridge.service || true

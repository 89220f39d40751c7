#!/bin/sh
# rootfs.sh DIR: adds to the files of an image what the bridge needs beside its
# program: a user of its own, and folders that it may write to. What an /etc/passwd
# from the base has stays.
set -eu
dir=$1
install -d -m 755 "$dir/etc" "$dir/etc/mcp-bridge" "$dir/var" "$dir/var/lib"
for file in passwd group; do
	[ -e "$dir/etc/$file" ] || case $file in
	passwd) echo 'root:x:0:0:root:/:/sbin/nologin' >"$dir/etc/passwd" ;;
	group) echo 'root:x:0:' >"$dir/etc/group" ;;
	esac
done
echo 'mcp-bridge:x:65532:65532:MCP bridge:/var/lib/mcp-bridge:/sbin/nologin' >>"$dir/etc/passwd"
echo 'mcp-bridge:x:65532:' >>"$dir/etc/group"
chmod 644 "$dir/etc/passwd" "$dir/etc/group"
install -d -m 1777 "$dir/tmp"
install -d -m 700 "$dir/var/lib/mcp-bridge"
chown 65532:65532 "$dir/var/lib/mcp-bridge"

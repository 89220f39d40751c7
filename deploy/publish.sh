#!/usr/bin/env bash
# Publishes parts of a release, after "make dist". The workflow "release" calls it; nothing else should.
#
#   deploy/publish.sh notes    prints the part of CHANGELOG.md about the version
#   deploy/publish.sh npm      publishes the packages of dist/npm
#   deploy/publish.sh login    signs in to the registry, with $TOKEN
#   deploy/publish.sh images   builds and pushes the images, for amd64 and arm64, with provenance and SBOM
#   deploy/publish.sh chart    pushes the Helm chart
#
# The version is that of the tag in GITHUB_REF_NAME, such as v1.2.3. REGISTRY is where images and chart go, DIST the
# folder of "make dist".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=${GITHUB_REF_NAME#v}
registry=${REGISTRY:-ghcr.io/mcp-bridge}
dist=$(realpath "${DIST:-dist}")
if [[ ! $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
	echo "GITHUB_REF_NAME is \"$GITHUB_REF_NAME\": it must be a tag such as v1.2.3" >&2
	exit 2
fi
candidate=false # such as 1.2.3-rc.1, which nobody gets without asking for it
[[ $version == *-* ]] && candidate=true

case "${1-}" in
notes)
	notes=$(awk -v version="$version" '/^## / { found = index($2, version) == 1 && length($2) == length(version); next } found' CHANGELOG.md)
	if [[ -z ${notes//[[:space:]]/} ]]; then
		echo "CHANGELOG.md has no part \"## $version\": write it" >&2
		exit 2
	fi
	printf '%s\n' "$notes"
	;;
npm) # programs first, so that the package that names them never lacks one
	tag=latest
	$candidate && tag=next
	for package in "$dist"/npm/mcp-bridge-*-*-"$version".tgz "$dist/npm/mcp-bridge-$version.tgz"; do
		name=$(basename "$package" "-$version.tgz")
		[[ $name == mcp-bridge ]] || name=@mcp-bridge/${name#mcp-bridge-}
		npm view "$name@$version" version >/dev/null 2>&1 && continue # published by an earlier try
		npm publish "$package" --provenance --access public --tag "$tag"
	done
	;;
login)
	printf '%s' "$TOKEN" | docker login "${registry%%/*}" --username "${GITHUB_ACTOR:-bridge}" --password-stdin
	printf '%s' "$TOKEN" | helm registry login "${registry%%/*}" --username "${GITHUB_ACTOR:-bridge}" --password-stdin
	;;
images)
	for target in mcp-bridge node uv all; do
		suffix=-$target
		[[ $target == mcp-bridge ]] && suffix=
		tags=(--tag "$registry/mcp-bridge:$version$suffix")
		$candidate || tags+=(--tag "$registry/mcp-bridge:${target/mcp-bridge/latest}")
		docker buildx build --file deploy/image/Dockerfile --target "$target" --platform linux/amd64,linux/arm64 \
			--build-arg "VERSION=$version" --provenance mode=max --sbom true "${tags[@]}" --push .
	done
	;;
chart)
	helm package deploy/helm/mcp-bridge --version "$version" --app-version "$version" --destination "$dist/chart"
	helm push "$dist/chart/mcp-bridge-$version.tgz" "oci://$registry/charts"
	;;
*)
	sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
	exit 2
	;;
esac

#!/usr/bin/env bash
# Sets everything up and makes a site of docs/ in site/. A link that leads nowhere ends it.
#
#     launch/docs.sh
#
# --serve           shows the site on http://127.0.0.1:8000 and follows changes of the pages
# --dry-run         only prints the command
# --help            this text
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

opt_serve=false

parse_options "$@"
export NO_MKDOCS_2_WARNING=1 # about another program
task=build
[ "$opt_serve" = false ] || task=serve
if [ "$opt_dry_run" = false ]; then
  export SPECJAX_EXTRAS="docs${SPECJAX_EXTRAS:+,$SPECJAX_EXTRAS}"
  source "$root/launch/setup.sh"
fi
run .venv/bin/mkdocs "$task" --strict

#!/usr/bin/env bash
# Rules of the house that no compiler checks. Prints every breach, then fails.
set -euo pipefail
cd "$(dirname "$0")/.."

breaches=0
breach() {
  echo "lint: $1" >&2
  breaches=$((breaches + 1))
}

# Files of the project, whether added to git yet or not.
files() {
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files --cached --others --exclude-standard -- "$@" |
      while IFS= read -r file; do [ ! -f "$file" ] || echo "$file"; done
  else
    find . -path ./target -prune -o -path ./out -prune -o -type f -print | sed 's|^\./||' |
      while IFS= read -r file; do
        if [ $# -eq 0 ]; then echo "$file"; continue; fi
        for pattern in "$@"; do
          # shellcheck disable=SC2254
          case "$file" in $pattern) echo "$file" ;; esac
        done
      done
  fi
}

# find RULE PATTERN: refuses lines that match in the files named on stdin.
find_lines() {
  local rule=$1 pattern=$2 hits
  hits=$(tr '\n' '\0' | xargs -0 -r grep -InHE -e "$pattern" -- || true)
  if [ -n "$hits" ]; then
    while IFS= read -r hit; do breach "$rule: ${hit:0:200}"; done <<<"$hits"
  fi
}

# A model is data: only its spec and the tests may name it.
find_lines "model name in Rust code" '[Qq][Ww][Ee][Nn]' \
  < <(files '*.rs' | grep -Ev '(^|/)tests/' || true)

# The language and the graph know primitives, not the kinds of layers that models make of them.
kinds='(^|[^A-Za-z])(gdn|mtp|moe|vision|GDN|MTP|MOE|MoE|VISION)([^a-z]|$)'
find_lines "layer kind in ir or frontend" "$kinds|(Gdn|Mtp|Moe|Vision)([^a-z]|\$)" \
  < <(files '*.rs' | grep -E '^(ir|frontend)/src/' || true)

# Split so that this file does not match itself.
home='/(wor''k|hom''e|roo''t)/[A-Za-z0-9_]'
find_lines "path of one machine" "(^|[^A-Za-z0-9_.)}*-])$home" < <(files | grep -v '^Cargo.lock$')

hosts='crates\.(i''o)|pypi\.(or''g)|npmjs\.(or''g)|proxy\.golang\.(or''g)'
find_lines "package registry host" "$hosts" < <(files | grep -Ev '(^|/)Cargo\.lock$')

allowed=' Cargo.toml Cargo.lock rustfmt.toml clippy.toml deny.toml LICENSE NOTICE Makefile
 README.md ARCHITECTURE.md ir frontend passes codegen runtime models tests docs '
while IFS= read -r entry; do
  case "$entry" in .*) continue ;; esac
  [[ $allowed =~ [[:space:]]$entry[[:space:]] ]] || breach "unexpected at the top level: $entry"
done < <(files | cut -d/ -f1 | sort -u)

while IFS= read -r file; do
  lines=$(wc -l <"$file")
  [ "$lines" -le 1200 ] || breach "$file has $lines lines, at most 1200 are allowed"
done < <(files '*.rs')

[ "$breaches" -eq 0 ] || { echo "lint: $breaches breaches" >&2; exit 1; }

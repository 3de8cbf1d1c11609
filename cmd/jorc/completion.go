package main

import (
	"io"

	"github.com/urfave/cli/v2"
)

// completeCommand is what the scripts below call, with the words of the command
// line up to the cursor: `jorc __complete service li`. It stands before the
// command tree, because the words may be anything.
const completeCommand = "__complete"

const bashScript = `# bash completion for jorc: source it, or put it into
# /usr/share/bash-completion/completions/jorc
_jorc() {
	local IFS=$'\n' cur="${COMP_WORDS[COMP_CWORD]}" words
	# Bash splits words at = and :, as in --output=json.
	if [[ "$cur" == "=" ]]; then cur=""; fi
	words=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
	COMPREPLY=($(compgen -W "$(jorc __complete "${words[@]}" "$cur" 2>/dev/null | cut -f1)" -- "$cur"))
}
complete -o default -o bashdefault -F _jorc jorc
`

const zshScript = `#compdef jorc
# zsh completion for jorc: put it into a directory of $fpath as _jorc
_jorc() {
	local -a candidates
	local line name text
	while IFS=$'\t' read -r name text; do
		candidates+=("${name//:/\\:}:${text}")
	done < <(jorc __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
	if (( ${#candidates} )); then
		_describe 'jorc' candidates
	else
		_files
	fi
}
if [ "$funcstack[1]" = "_jorc" ]; then _jorc "$@"; else compdef _jorc jorc; fi
`

const fishScript = `# fish completion for jorc: put it into ~/.config/fish/completions/jorc.fish
function __jorc_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    jorc __complete $words[2..-1] "$current" 2>/dev/null
end
complete -c jorc -a '(__jorc_complete)'
`

func completionCommand(*environment) *cli.Command {
	script := func(shell, text string) *cli.Command {
		return &cli.Command{
			Name:  shell,
			Usage: "print the script for " + shell,
			Action: func(c *cli.Context) error {
				if len(arguments(c)) > 0 {
					return usagef(c, "no arguments expected")
				}
				_, err := io.WriteString(underlying(c.App.Writer), text)
				return err
			},
		}
	}
	return &cli.Command{
		Name:        "completion",
		Usage:       "print a script that completes commands and flags in the shell",
		Description: "For this shell only: source <(jorc completion bash)",
		Subcommands: []*cli.Command{script("bash", bashScript), script("zsh", zshScript), script("fish", fishScript)},
	}
}

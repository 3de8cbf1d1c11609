package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// completeCommand is what the scripts below call, with the words of the command
// line up to the cursor: `jorc __complete service li`. It stands before the
// command tree, because the words may be anything.
const completeCommand = "__complete"

const bashScript = `# bash completion for jorc: source it, or put it into
# /usr/share/bash-completion/completions/jorc
_jorc() {
	local cur="${COMP_WORDS[COMP_CWORD]}" words name
	# Bash splits words at = and :, as in --output=json.
	if [[ "$cur" == "=" ]]; then cur=""; fi
	words=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
	COMPREPLY=()
	while IFS=$'\t' read -r name _; do
		COMPREPLY+=("$name")
	done < <(jorc __complete "${words[@]}" "$cur" 2>/dev/null)
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

// complete writes the candidates for the last of words, one per line, a tab
// between the word and what it is. It writes nothing where any word may stand:
// the shell then offers files.
func complete(ctx context.Context, w io.Writer, env *environment, app *cli.App, words []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	before, current := words[:len(words)-1], words[len(words)-1]
	a := newArranger(app)
	var pending cli.Flag // a flag whose value comes next
	var owner *cli.Command
	for _, word := range before {
		switch {
		case word == "--":
			return // a command of the user's own
		case word == "=": // bash splits --flag=value
		case pending != nil:
			a.add(owner, "--"+pending.Names()[0]+"="+word)
			pending = nil
		case a.isFlag(word):
			name, value, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
			of, f := a.lookup(name)
			switch {
			case f == nil:
			case hasValue && takesValue(f):
				a.add(of, "--"+f.Names()[0]+"="+value)
			case takesValue(f):
				owner, pending = of, f
			}
		default:
			_ = a.argument(word) // what is not known yet is completed from where it stands
		}
	}
	prefix := ""
	if name, value, hasValue := strings.Cut(current, "="); hasValue && strings.HasPrefix(name, "--") && pending == nil {
		if _, f := a.lookup(strings.TrimLeft(name, "-")); f != nil && takesValue(f) {
			prefix, current, pending = name+"=", value, f
		}
	}
	candidates := a.candidates(current, pending)
	if kind := a.nameKind(pending); len(candidates) == 0 && kind != noNames && (pending != nil || !strings.HasPrefix(current, "-")) {
		candidates = env.names(ctx, a.flags[nil], app, kind)
	}
	for _, c := range candidates {
		if strings.HasPrefix(c.word, current) {
			fmt.Fprintf(w, "%s%s\t%s\n", prefix, c.word, c.about)
		}
	}
}

type candidate struct{ word, about string }

func (a *arranger) candidates(current string, pending cli.Flag) []candidate {
	switch {
	case pending != nil:
		return values(pending)
	case strings.HasPrefix(current, "-"):
		return a.flagCandidates()
	case len(a.arguments) > 0:
		return nil
	}
	var found []candidate
	for _, c := range a.commands() {
		if !c.Hidden {
			found = append(found, candidate{c.Name, c.Usage})
		}
	}
	return found
}

func (a *arranger) flagCandidates() []candidate {
	var found []candidate
	add := func(flags []cli.Flag) {
		for _, f := range flags {
			name := "--" + f.Names()[0]
			v, visible := f.(cli.VisibleFlag)
			if !visible || !v.IsVisible() || slices.ContainsFunc(found, func(c candidate) bool { return c.word == name }) {
				continue
			}
			about := ""
			if d, ok := f.(cli.DocGenerationFlag); ok {
				about = strings.ReplaceAll(d.GetUsage(), "`", "")
			}
			found = append(found, candidate{name, about})
		}
	}
	for _, c := range slices.Backward(a.path) {
		add(c.Flags)
	}
	add(a.app.Flags)
	return found
}

// values are those of the flags that take one of a few words.
func values(f cli.Flag) []candidate {
	var words []string
	switch f.Names()[0] {
	case "output":
		words = []string{formatTable, formatJSON, formatPlain}
	case "log-level":
		words = logLevels
	}
	found := make([]candidate, len(words))
	for i, w := range words {
		found[i] = candidate{word: w}
	}
	return found
}

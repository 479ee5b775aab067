package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/policy"
)

// permissionModes are the values of --permission-mode.
func permissionModes() []string {
	var out []string
	for _, m := range policy.Modes() {
		out = append(out, string(m))
	}
	return out
}

// checkMode refuses a mode that is not known, and returns what it means.
func (a *app) checkMode(mode string) (string, error) {
	if mode == string(policy.Auto) {
		fmt.Fprintln(a.Stderr, "drover: note: permission mode auto is taken as default")
		return "", nil
	}
	if mode != "" && !slices.Contains(permissionModes(), mode) {
		return "", usage(fmt.Sprintf("--permission-mode %q: unknown mode", mode), "use "+strings.Join(permissionModes(), ", "))
	}
	return mode, nil
}

// completePrompt completes the values of the flags of a prompt that cmd has.
func (a *app) completePrompt(cmd *cobra.Command) {
	words := func(list []string) cobra.CompletionFunc {
		return cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
	}
	for flag, complete := range map[string]cobra.CompletionFunc{
		"model": a.completeModels, "agent": a.completeAgents, "permission-mode": words(permissionModes()),
		"output-format": words(promptFormats()),
		"resume":        a.completeConversations,
		"add-dir":       cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs),
	} {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, complete) // there is such a flag
		}
	}
}

// completeAgents offers the names of agents.
func (a *app) completeAgents(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	var out []cobra.Completion
	for _, name := range a.agentFiles("").Current().Names() {
		if strings.HasPrefix(name, typed) {
			out = append(out, name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeConversations offers the sessions that a prompt can go on with.
func (a *app) completeConversations(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	infos, _ := a.conversations(cmd.Context()) // nothing to offer then
	var out []cobra.Completion
	for _, i := range infos {
		if strings.HasPrefix(string(i.Session), typed) {
			out = append(out, cobra.CompletionWithDesc(string(i.Session), cell(i.Title, 40)))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completion prints the scripts that make shells complete.
func (a *app) completion(root *cobra.Command) *cobra.Command {
	scripts := map[string]func(io.Writer) error{
		"bash":       func(w io.Writer) error { return bashCompletion(root, w) },
		"zsh":        root.GenZshCompletion,
		"fish":       func(w io.Writer) error { return root.GenFishCompletion(w, true) },
		"powershell": root.GenPowerShellCompletionWithDesc,
	}
	shells := []string{"bash", "fish", "powershell", "zsh"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the script that makes a shell complete: bash, zsh, fish or powershell",
		Long: "Print the script that makes a shell complete commands, flags, IDs, names of tasks, agents and sessions.\n" +
			"The script for bash needs no other package.",
		Args: func(cmd *cobra.Command, words []string) error {
			if err := takes(1, 1)(cmd, words); err != nil {
				return err
			}
			if !slices.Contains(shells, words[0]) {
				return usage(fmt.Sprintf("unknown shell %q", words[0]), "use "+strings.Join(shells, ", "))
			}
			return nil
		},
		ValidArgsFunction: cobra.FixedCompletions(shells, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(_ *cobra.Command, words []string) error {
			var script bytes.Buffer
			if err := scripts[words[0]](&script); err != nil {
				return fmt.Errorf("write the completion script: %w", err)
			}
			_, err := a.Stdout.Write(script.Bytes())
			return err
		},
	}
}

// bashCompletion writes the script for bash with the two functions that it takes from
// the package bash-completion where that is missing.
func bashCompletion(root *cobra.Command, w io.Writer) error {
	if _, err := io.WriteString(w, bashWithoutPackage); err != nil {
		return err
	}
	return root.GenBashCompletionV2(w, true)
}

// bashWithoutPackage splits the line as the functions of bash-completion do: the
// characters that are excluded from the word breaks of readline join words.
const bashWithoutPackage = `# Used only where the package bash-completion is not loaded.
if ! declare -F _get_comp_words_by_ref >/dev/null && ! declare -F _init_completion >/dev/null; then
_get_comp_words_by_ref() {
    local exclude="" i joined=() at=0
    if [[ $1 == -n ]]; then exclude=$2; fi
    for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
        local word=${COMP_WORDS[i]} before=""
        if ((i > 1)); then before=${COMP_WORDS[i-1]}; fi
        if ((i > 1)) && { [[ -n $word && -z ${word//[$exclude]/} ]] || [[ -n $before && -z ${before//[$exclude]/} ]]; } &&
            [[ ${COMP_LINE:0:COMP_POINT} == *"$before$word"* ]]; then
            joined[${#joined[@]}-1]+=$word
        else
            joined+=("$word")
        fi
        if ((i == COMP_CWORD)); then at=$((${#joined[@]} - 1)); fi
    done
    words=("${joined[@]}")
    cword=$at
    cur=${words[cword]}
    prev=""
    if ((cword > 0)); then prev=${words[cword-1]}; fi
}
fi
if ! declare -F __ltrim_colon_completions >/dev/null; then
__ltrim_colon_completions() {
    if [[ $1 == *:* && $COMP_WORDBREAKS == *:* ]]; then
        local prefix=${1%"${1##*:}"} i
        for ((i = 0; i < ${#COMPREPLY[@]}; i++)); do COMPREPLY[i]=${COMPREPLY[i]#"$prefix"}; done
    fi
}
fi
`

// conversations are the sessions of this folder that a prompt can go on with, newest
// first.
func (a *app) conversations(ctx context.Context) ([]control.Info, error) {
	infos, err := a.known(ctx, false)
	return slices.DeleteFunc(infos, func(i control.Info) bool { return i.Role != conversing }), err
}

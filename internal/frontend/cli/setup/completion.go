package setup

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

// completion prints the scripts that make shells complete.
func (a *app) completion() *cobra.Command {
	scripts := map[string]func(*cobra.Command, io.Writer) error{
		"bash":       bashCompletion,
		"zsh":        (*cobra.Command).GenZshCompletion,
		"fish":       func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) },
		"powershell": (*cobra.Command).GenPowerShellCompletionWithDesc,
	}
	shells := []string{"bash", "fish", "powershell", "zsh"}
	return &cobra.Command{
		Use: "completion SHELL",
		Long: "Print the script that makes a shell complete commands, flags, IDs, names of tasks, agents and sessions.\n" +
			"The script for bash needs no other package.",
		Args: func(cmd *cobra.Command, words []string) error {
			if err := console.Args(1, 1)(cmd, words); err != nil {
				return err
			}
			if !slices.Contains(shells, words[0]) {
				return console.Usage(fmt.Sprintf("unknown shell %q", words[0]), "use "+strings.Join(shells, ", "))
			}
			return nil
		},
		ValidArgsFunction: cobra.FixedCompletions(shells, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, words []string) error {
			var script bytes.Buffer
			if err := scripts[words[0]](cmd.Root(), &script); err != nil {
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
        if ((i > 1)) &&
            { [[ -n $word && -z ${word//[$exclude]/} ]] || [[ -n $before && -z ${before//[$exclude]/} ]]; } &&
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

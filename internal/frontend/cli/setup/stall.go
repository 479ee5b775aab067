package setup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// stallCommand says what Drover makes of an output, to look into a surprise.
func (a *app) stall() *cobra.Command {
	var batch bool
	one := &cobra.Command{
		Use: "stall", Short: "Test whether an output looks like a wait for input",
		Long: "Read the end of a command's output from stdin and print `waiting` or `progress`, as the stall detection of\n" +
			"background commands decides. With --batch each line is one such output, in which \\\\ \\n \\r \\t and\n" +
			"\\xHH stand for bytes; text after a tab is ignored.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if batch {
				return stallBatch(cmd.OutOrStdout(), cmd.InOrStdin(), a.Waiting())
			}
			tail, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), 64<<20))
			if err != nil {
				return fmt.Errorf("read the output: %w", err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), stalled(a.Waiting(), tail))
			return err
		},
	}
	one.Flags().BoolVar(&batch, "batch", false, "one case a line")
	return one
}

func stalled(waiting func([]byte) bool, tail []byte) string {
	if waiting(tail) {
		return "waiting"
	}
	return "progress"
}

func stallBatch(out io.Writer, in io.Reader, rules func([]byte) bool) error {
	w := bufio.NewWriter(out)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "\t")
		tail, err := unescape(text)
		if err != nil {
			return errors.Join(fmt.Errorf("line %d: %w", n, err), w.Flush())
		}
		fmt.Fprintln(w, stalled(rules, tail))
	}
	if err := lines.Err(); err != nil {
		return errors.Join(fmt.Errorf("read cases: %w", err), w.Flush())
	}
	return w.Flush()
}

// unescape reads \\ \n \r \t and \xHH.
func unescape(s string) ([]byte, error) {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			out = append(out, s[i])
			continue
		}
		if i++; i == len(s) {
			return nil, errors.New("a backslash at the end")
		}
		switch s[i] {
		case '\\':
			out = append(out, '\\')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'x':
			b, err := strconv.ParseUint(s[min(i+1, len(s)):min(i+3, len(s))], 16, 8)
			if err != nil || i+2 >= len(s) {
				return nil, errors.New("\\x is not followed by two hexadecimal digits")
			}
			out, i = append(out, byte(b)), i+2
		default:
			return nil, fmt.Errorf("\\%c is not an escape", s[i])
		}
	}
	return out, nil
}

package lifecycle

import (
	"fmt"
	"strings"

	"github.com/drover-dev/drover/task"
)

// maxTeamWord is the number of characters of the name of a teammate, and of a team.
const maxTeamWord = 40

// NewTeam says who a teammate is; nth is how many its team has had before, which
// chooses its color.
func NewTeam(name, team string, nth int) (task.Team, error) {
	for _, word := range []struct{ what, text string }{{"teammate", name}, {"team", team}} {
		if !teamWord(word.text) {
			return task.Team{}, fmt.Errorf(
				"the name of a %s is 1 to %d letters, digits and -_. and begins with a letter or digit, not %.60q",
				word.what,
				maxTeamWord,
				word.text,
			)
		}
	}
	colors := TeamColors()
	return task.Team{AgentID: name + "@" + team, Name: name, Team: team, Color: colors[nth%len(colors)]}, nil
}

func teamWord(s string) bool {
	const first = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return s != "" && len(s) <= maxTeamWord && strings.Contains(first, s[:1]) && strings.Trim(s, first+"-_.") == "" &&
		!strings.Contains(s, "..")
}

// SplitTeam takes name@team apart.
func SplitTeam(agentID string) (name, team string, ok bool) {
	name, team, ok = strings.Cut(agentID, "@")
	return name, team, ok && teamWord(name) && teamWord(team)
}

// TeamColors are the colors of teammates, in the order in which a team gets them.
func TeamColors() []string { return []string{"blue", "green", "yellow", "magenta", "cyan", "red"} }

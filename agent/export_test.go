package agent

// Repair is what [NewLoop] does to a history, without the IDs.
func Repair(history []Message) (repaired, added []Message, err error) {
	repaired, added, _, err = repair(history)
	return repaired, added, err
}

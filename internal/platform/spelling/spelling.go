// Package spelling finds the known words that a misspelled one may have meant. It has no words itself.
package spelling

// longest is the length of words that are compared, in bytes. Longer ones are like no other.
const longest = 100

// Distance returns how many bytes of a to insert, remove or change to get b.
func Distance(a, b string) int {
	if len(a) > longest || len(b) > longest {
		return max(len(a), len(b))
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

package text

import (
	"fmt"
	"slices"
	"strings"
)

// Few joins the first most of all, and says how many more there are: "a, b and 3 more".
func Few(separator string, all []string, most int) string {
	return FewOf(separator, all[:min(len(all), most)], len(all))
}

// FewOf is Few for a list of count of which only the first are known. Sentences, which "; " separates, end with
// "; and 3 more".
func FewOf(separator string, first []string, count int) string {
	list := strings.Join(first, separator)
	more := count - len(first)
	switch {
	case more <= 0:
		return list
	case list == "":
		return fmt.Sprintf("%d more", more)
	case separator == "; ":
		list += ";"
	}
	return fmt.Sprintf("%s and %d more", list, more)
}

// Lines returns the first most of all, and "and 3 more" as the last where there are more.
func Lines(all []string, most int) []string {
	if more := len(all) - most; more > 0 {
		return append(slices.Clip(all[:most]), fmt.Sprintf("and %d more", more))
	}
	return all
}

// Prints every flag as a Markdown table: `flag_table > table.md`.
#include <iostream>

#include "server/flags/catalogue.h"

int main() { std::cout << backendd::FlagTableMarkdown(); }

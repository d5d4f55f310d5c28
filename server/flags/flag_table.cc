#include "server/flags/catalogue.h"
int main() {}

#include "server/flags/catalogue.h"

#include "server/flags/precision.h"

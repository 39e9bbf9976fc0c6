/* A unit is taken out of SQL by hand and the operator plans a change: two buyers, two units. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_B
#define STOCK 2
#define SQL_LOSES_A_UNIT
#define PLANNED_CHANGE
#include "../dropgate.pml"

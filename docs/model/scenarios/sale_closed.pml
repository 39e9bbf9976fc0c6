/* The operator closes the sale, and plans a change, while a reservation is under way. */
#define PLANNED_CHANGE
#define CLOSES_SALE
#include "../dropgate.pml"
